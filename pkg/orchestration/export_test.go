package orchestration

import "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"

// Know has the queue know an action as if it was stored.
func Know(q *Queue, o *v1alpha1.RTAction) { q.ledger.put(o) }

// Ask about a cause.
func Ask(q *Queue, cause string) { q.remember(cause, q.Clock.Now()) }

// Disposable are the actions that are forgotten now.
func Disposable(q *Queue) []*v1alpha1.RTAction { return q.disposable(q.Clock.Now()) }

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
	KeptAlike = keptAlike
	// DeletedMost is in bytes.
	DeletedMost = deletedMost
	// NotesAtOnce bounds a round.
	NotesAtOnce = notesAtOnce
)

// Encode actions as they are archived.
var Encode = encode
