package orchestration

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// end is how attempts came to nothing, as far as a controller that asks about their cause tells them apart.
type end struct {
	// deed is what was to be done, wherever the pods were to go: nodes come and go for as long as a pressure lasts.
	deed        string
	criticality rt.Criticality
	phase       rules.Phase
	// kept by a disruption of the node from beginning; elsewhere: undone as the target was full.
	unwanted, kept, elsewhere bool
}

func endOf(o *v1alpha1.RTAction, a rules.Action) end {
	return end{anywhere(o.Spec), a.Criticality, a.Phase, a.Unwanted, KeptByDisruption(o), o.Status.Progress[v1alpha1.ProgressElsewhere] != ""}
}

// anywhere is what an action does, wherever the pods are to go.
func anywhere(s v1alpha1.RTActionSpec) string {
	s.TargetNode = ""
	return deed(s)
}

// number is that of another attempt: above those of all that are known at doing the same, wherever the pods were to go. Of these the last are kept
// longest, so none has the name of one that is forgotten, and that something made for it may still bear.
func (q *Queue) number(r Request) int32 {
	out, what := int32(0), anywhere(r.spec())
	for _, o := range q.recall(func(known *register) []string { return known.causes.of(r.Cause) }) {
		if o.Spec.Attempt > out && anywhere(o.Spec) == what {
			out = o.Spec.Attempt
		}
	}
	return out + 1
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

// superseded are the names of actions that tell a controller which asks about their cause nothing more. These are attempts in
// vain after which so many at doing the same have ended like them, to whichever node the pods were to go: those that are left
// tell how many there were. They are also, of all that moved no pod for a cause, those beyond so many: pods come and go, and no
// controller asks again for what was to be done to those that went.
func (q *Queue) superseded() map[string]bool {
	ends, causes := map[end][]*v1alpha1.RTAction{}, map[string][]*v1alpha1.RTAction{}
	for _, o := range q.recall(func(r *register) []string { return r.names }) {
		a, _ := record.Read(o) // what is wrong with it is in its message
		if a.Phase == rules.Refused || inVain(a) {
			causes[a.Cause] = append(causes[a.Cause], o)
		}
		if inVain(a) {
			e := endOf(o, a)
			ends[e] = append(ends[e], o)
		}
	}
	out := map[string]bool{}
	for _, list := range ends {
		beyond(keptAlike, list, out)
	}
	for _, list := range causes {
		list = slices.DeleteFunc(list, func(o *v1alpha1.RTAction) bool { return out[o.Name] })
		beyond(kept, list, out)
	}
	return out
}

// beyond notes the names of all but so many actions, the last ones. One that is being deleted is known twice.
func beyond(most int, list []*v1alpha1.RTAction, out map[string]bool) {
	if len(list) <= most {
		return
	}
	slices.SortFunc(list, func(a, b *v1alpha1.RTAction) int {
		return cmp.Or(entered(b).Compare(entered(a)), cmp.Compare(b.Spec.Attempt, a.Spec.Attempt), strings.Compare(b.Name, a.Name))
	})
	list = slices.CompactFunc(list, func(a, b *v1alpha1.RTAction) bool { return a.Name == b.Name })
	for _, o := range list[min(most, len(list)):] {
		out[o.Name] = true
	}
}
