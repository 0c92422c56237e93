package orchestration

import (
	"cmp"
	"slices"
	"strings"

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

// superseded are the names of actions that tell whoever asks about their cause nothing more: attempts in vain after which so many at the same have
// ended like them, as how many there were is told by those that are left; and of all that moved nobody for a cause those beyond so many, as pods come and
// go, and what was to be done to those that went is not asked for again.
func (q *Queue) superseded() map[string]bool {
	ends, causes := map[end][]*v1alpha1.RTAction{}, map[string][]*v1alpha1.RTAction{}
	for _, o := range q.recall(func(r *register) []string { return r.names }) {
		a, _ := record.Read(o) // what is wrong with it is in its message
		if a.Phase == rules.Refused || inVain(a) {
			causes[a.Cause] = append(causes[a.Cause], o)
		}
		if key := o.Labels[v1alpha1.LabelActionKey]; key != "" && inVain(a) {
			e := end{key, a.Phase, a.Unwanted, KeptByDisruption(o)}
			ends[e] = append(ends[e], o)
		}
	}
	out := map[string]bool{}
	for _, list := range ends {
		beyond(keptAlike, list, out, func(o *v1alpha1.RTAction) int64 { return int64(o.Spec.Attempt) })
	}
	for _, list := range causes {
		list = slices.DeleteFunc(list, func(o *v1alpha1.RTAction) bool { return out[o.Name] })
		beyond(kept, list, out, func(o *v1alpha1.RTAction) int64 { return entered(o).UnixMicro() })
	}
	return out
}

// beyond notes the names of all but so many actions, the last ones. One that is being deleted is known twice.
func beyond(most int, list []*v1alpha1.RTAction, out map[string]bool, at func(*v1alpha1.RTAction) int64) {
	if len(list) <= most {
		return
	}
	slices.SortFunc(list, func(a, b *v1alpha1.RTAction) int {
		return cmp.Or(cmp.Compare(at(b), at(a)), strings.Compare(b.Name, a.Name))
	})
	list = slices.CompactFunc(list, func(a, b *v1alpha1.RTAction) bool { return a.Name == b.Name })
	for _, o := range list[min(most, len(list)):] {
		out[o.Name] = true
	}
}
