package orchestration

import (
	"cmp"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// end is how attempts at the same came to nothing, as far as whoever asks about their cause tells them apart.
type end struct {
	key            string
	phase          rules.Phase
	unwanted, kept bool
}

// inVain tells whether an action that is over has moved nothing, so that the same may be tried again.
func inVain(a rules.Action) bool {
	switch a.Phase {
	case rules.RolledBack, rules.Withdrawn, rules.Expired:
		return true
	case rules.Failed:
		return len(a.Moves) == 0 // else some may have been moved
	}
	return false
}

// superseded are the names of attempts in vain after which so many at the same have ended like them that they tell nobody anything more. How many there
// were is told by those that are left.
func (q *Queue) superseded() map[string]bool {
	ends := map[end][]*v1alpha1.RTAction{}
	for _, o := range q.recall(func(r *register) []string { return r.names }) {
		key := o.Labels[v1alpha1.LabelActionKey]
		if key == "" || !over(o) {
			continue
		}
		if a, _ := record.Read(o); inVain(a) { // what is wrong with it is in its message
			e := end{key, a.Phase, a.Unwanted, KeptByDisruption(o)}
			ends[e] = append(ends[e], o)
		}
	}
	out := map[string]bool{}
	for _, list := range ends {
		slices.SortFunc(list, func(a, b *v1alpha1.RTAction) int { return cmp.Compare(b.Spec.Attempt, a.Spec.Attempt) })
		list = slices.CompactFunc(list, func(a, b *v1alpha1.RTAction) bool { return a.Name == b.Name }) // one that is being deleted is known twice
		for _, o := range list[min(keptAlike, len(list)):] {
			out[o.Name] = true
		}
	}
	return out
}
