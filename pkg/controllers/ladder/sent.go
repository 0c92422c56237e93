package ladder

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// sentInVain are the attempts at having a pod go to another node that came to nothing for the pressure: from so many nodes on they speak against the
// next, whichever that is, or a pressure that lasts while nodes come and go would try each of them without a rest. As with nodes that are opened those for
// somebody less critical do not count, nor those that were not wanted any longer.
type sentInVain struct {
	last *v1alpha1.RTAction
	// asked is how many, but for those that the disruption of a node kept from beginning; nodes is to how many.
	asked int32
	nodes map[string]bool
}

func sentOf(answers []*v1alpha1.RTAction, uid types.UID, of rt.Criticality) sentInVain {
	out := sentInVain{nodes: map[string]bool{}}
	for _, o := range answers { // by age, and one after another that did not begin is as old as that
		if rules.Kind(o.Spec.Kind) != rules.Migrate || len(o.Spec.Pods) == 0 || o.Spec.Pods[0].UID != uid {
			continue
		}
		if a, _ := record.Read(o); a.Criticality < of || a.Unwanted || !vain(a.Phase) { // what is wrong with it is in its message
			continue
		}
		if out.nodes[o.Spec.TargetNode] = true; out.last == nil || !ended(o).Before(ended(out.last)) {
			out.last = o
		}
		if !orchestration.KeptByDisruption(o) {
			out.asked++
		}
	}
	return out
}

// vain tells whether an action is over, and was neither done nor withdrawn.
func vain(p rules.Phase) bool { return p.Over() && p != rules.Succeeded && p != rules.Withdrawn }

// ended is when an action that is over came to its end.
func ended(o *v1alpha1.RTAction) time.Time {
	a, _ := record.Read(o) // for its times
	return a.Entered
}

// ticket is what is known of one more, beside what is known of the same that was asked for before.
func (s sentInVain) ticket(t orchestration.Ticket, tried bool) (orchestration.Ticket, bool) {
	if s.last == nil || !tried && len(s.nodes) < targets {
		return t, tried
	}
	return rested(t, tried, s.last, s.asked), true
}
