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

// sentInVain are the failed attempts to move a pod to another node for the pressure. From a number of nodes on they count
// against the next node, whichever it is. Otherwise, while nodes come and go, the planner would try each of them without a
// backoff. As with opened nodes, attempts for a less critical container do not count, nor do withdrawn ones.
type sentInVain struct {
	last *v1alpha1.RTAction
	// asked is the number of attempts, except those that the disruption of a node kept from beginning. nodes are their targets.
	asked int32
	nodes map[string]bool
}

func sentOf(answers []*v1alpha1.RTAction, uid types.UID, of rt.Criticality) sentInVain {
	out := sentInVain{nodes: map[string]bool{}}
	for _, o := range answers { // by age; an attempt after another that did not begin is as old as that one
		if rules.Kind(o.Spec.Kind) != rules.Migrate || len(o.Spec.Pods) == 0 || o.Spec.Pods[0].UID != uid {
			continue
		}
		if a, _ := record.Read(o); a.Criticality < of || a.Unwanted || !vain(a.Phase) { // for its criticality
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

// vain tells whether an action is over, and neither succeeded nor was withdrawn.
func vain(p rules.Phase) bool { return p.Over() && p != rules.Succeeded && p != rules.Withdrawn }

// ended is when an action that is over came to its end.
func ended(o *v1alpha1.RTAction) time.Time {
	a, _ := record.Read(o) // for its times
	return a.Entered
}

// ticket combines the record of an earlier request for the same with the attempts so far.
func (s sentInVain) ticket(t orchestration.Ticket, tried bool) (orchestration.Ticket, bool) {
	if s.last == nil || !tried && len(s.nodes) < targets {
		return t, tried
	}
	return rested(t, tried, s.last, s.asked), true
}
