package disruption

import (
	"fmt"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	disruptionevents "sigs.k8s.io/karpenter/pkg/controllers/disruption/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// Follow fires the trigger when an action against real-time pressure begins to wait for a node that a standard method is
// closing.
func (c *Controller) Follow(a *v1alpha1.RTAction) {
	if rules.Phase(a.Status.Phase) == rules.Waiting && a.Status.WaitingFor == orchestration.ReasonNodeBeingDisrupted && c.inTheWay(a) != nil {
		c.Trigger.Fire()
	}
}

// yield takes back the commands of standard methods for which actions against real-time pressure wait. Each would wait for the
// other, as the gate deletes no node on which a container under pressure has a raised budget. What those actions do is urgent,
// and the methods find again what they would do.
func (c *Controller) yield() {
	for _, a := range c.Actions.WaitingFor(orchestration.ReasonNodeBeingDisrupted) {
		if command := c.inTheWay(a); command != nil {
			c.giveWay(command, a)
		}
	}
}

// inTheWay is the command of a standard method for the node to which an action against real-time pressure is to be done; nil for none. To a node
// that is repaired nothing is done any longer, and one of a NodePool with a fixed number of nodes is replaced by nothing else.
func (c *Controller) inTheWay(a *v1alpha1.RTAction) *disruption.Command {
	if a.Spec.Reason != string(Reason) || rules.Kind(a.Spec.Kind) == rules.Migrate {
		return nil
	}
	command := commandFor(c.Queue, func(n *disruption.Candidate) bool {
		return n.Name() == a.Spec.Node && (rules.Kind(a.Spec.Kind) != rules.ReplaceNode || !n.OwnedByStaticNodePool())
	})
	if command == nil || command.Reason() == karpv1.DisruptionReasonUnhealthy || command.Reason() == Reason {
		return nil
	}
	return command
}

// giveWay ends a command as if it had failed: what marks its nodes goes in the pass that begins, and what was opened stays. The standard methods
// leave the action's node alone for a while, or they would find the same again before the action has begun.
func (c *Controller) giveWay(command *disruption.Command, a *v1alpha1.RTAction) {
	c.Cluster.UnmarkForDeletion(c.Gate.takeBack(command)...)
	for _, m := range c.standard {
		if m.Reason() != karpv1.DisruptionReasonUnhealthy {
			m.rest(a.Spec.Node)
		}
	}
	metrics.DisruptionRefusals.WithLabelValues(ReasonActionInFlight).Inc()
	for _, n := range command.Candidates {
		c.Recorder.Publish(disruptionevents.Unconsolidatable(n.Node, n.NodeClaim, fmt.Sprintf(
			"%s: action %s waits for node %s, whose closing for reason %s is called off", ReasonActionInFlight, a.Name, a.Spec.Node, command.Reason()))...)
	}
}
