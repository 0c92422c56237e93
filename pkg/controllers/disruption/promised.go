package disruption

import (
	"fmt"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// promise is for how long a place is promised: it comes free when what is closing has gone. That takes an hour seldom, and the
// action that waits may be at rest then.
const promise = time.Hour

// promised is the objection to closing a node that would take a promised place in the NodePool's budget; nil for none. The
// place is promised to the replacement of a node under real-time pressure which waits for it, or rests from waiting. The
// objection is for a while only, and not where the budget has no place for such a reason at all. Repair goes on. No node of a
// NodePool with a fixed number of them is replaced so.
func (m *filtered) promised(c *disruption.Candidate) *objection {
	for _, reason := range []string{rules.ReasonPoolBudget, orchestration.ReasonNodeBeingDisrupted} {
		for _, a := range m.Actions.Awaiting(reason) {
			if a.Spec.NodePool == c.NodePool.Name && !c.OwnedByStaticNodePool() && m.awaits(a) && c.NodePool.MustGetAllowedDisruptions(m.Clock, 1, Reason) > 0 {
				return &objection{c.Name(), ReasonActionInFlight, fmt.Sprintf("action %s waits for a place in the disruption budgets of NodePool %s", a.Name, a.Spec.NodePool)}
			}
		}
	}
	return nil
}

// awaits tells whether an action waits, not for too long yet, for nothing but such a place, which the method is to leave to it: what was closing its node
// has given way, and does no longer.
func (m *filtered) awaits(a *v1alpha1.RTAction) bool {
	read, _ := record.Read(a) // for how long
	return a.Spec.Reason == string(Reason) && rules.Kind(a.Spec.Kind) == rules.ReplaceNode && m.Clock.Since(read.Since) < promise && m.Reason() != karpv1.DisruptionReasonUnhealthy &&
		commandFor(m.Queue, func(n *disruption.Candidate) bool { return n.Name() == a.Spec.Node }) == nil
}
