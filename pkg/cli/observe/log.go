package observe

import "maps"

// maxDecisions bounds the decisions that are kept; the oldest go first.
const maxDecisions = 5000

// journal keeps decisions in the order they came, the same one told again only counted.
type journal struct {
	all   []Decision
	index map[string]int // of the last decision with these words
	begun int            // how many were dropped at the front
}

func newJournal() *journal { return &journal{index: map[string]int{}} }

func (j *journal) add(d Decision) {
	key := string(d.Kind) + "|" + d.Node + "|" + d.Text
	if at, ok := j.index[key]; ok {
		j.all[at-j.begun].Count++
		return
	}
	if len(j.all) == maxDecisions {
		j.forget(maxDecisions / 2)
	}
	j.index[key] = j.begun + len(j.all)
	j.all = append(j.all, d)
}

func (j *journal) forget(n int) {
	j.all = append([]Decision(nil), j.all[n:]...)
	j.begun += n
	maps.DeleteFunc(j.index, func(_ string, at int) bool { return at < j.begun })
}

// last are the newest n decisions, oldest first.
func (j *journal) last(n int) []Decision {
	from := max(0, len(j.all)-n)
	return append([]Decision(nil), j.all[from:]...)
}
