package orchestration

// Names of all actions that the queue knows.
func Names(q *Queue) (out []string) {
	for _, o := range q.ledger.all() {
		out = append(out, o.Name)
	}
	return out
}

// Bounds of what is kept.
const (
	Retention = retention
	Kept      = kept
	Rest      = rest
	RestMost  = restMost
	// DeletedMost is in bytes.
	DeletedMost = deletedMost
	// NotesAtOnce bounds a round.
	NotesAtOnce = notesAtOnce
)

// Encode actions as they are archived.
var Encode = encode
