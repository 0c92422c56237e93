package disruption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/utils/pdb"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
)

// Reason is for which nodes under real-time pressure are disrupted. Budgets of NodePools that name no reasons, or this
// one, govern it.
const Reason karpv1.DisruptionReason = "RTPressure"

// rtPressure is the method that replaces the nodes of ReplaceNode actions which run. It disrupts nothing else.
type rtPressure struct {
	Dependencies
	desk *desk
}

// Reason implements disruption.Method.
func (p *rtPressure) Reason() karpv1.DisruptionReason { return Reason }

// Class implements disruption.Method: PodDisruptionBudgets and the annotation do-not-disrupt are respected.
func (p *rtPressure) Class() string { return disruption.GracefulDisruptionClass }

// ConsolidationType implements disruption.Method: it is none.
func (p *rtPressure) ConsolidationType() string { return "" }

// ShouldDisrupt implements disruption.Method.
func (p *rtPressure) ShouldDisrupt(_ context.Context, c *disruption.Candidate) bool {
	action := p.desk.order(c.Name(), c.Node.UID)
	if action == nil {
		return false
	}
	if c.OwnedByStaticNodePool() {
		p.desk.write(action.Name, note{impossible: true, message: fmt.Sprintf("NodePool %s has a fixed number of nodes", c.NodePool.Name)})
		return false
	}
	if o := inHand(p.actions(), action.Name).busy(p.Store.Snapshot(), c.Name(), false); o != nil {
		p.desk.write(action.Name, note{message: o.message})
		return false
	}
	return true
}

// ComputeCommands implements disruption.Method. There is at most one command: the next one is computed on what
// the cluster is with this one under way.
func (p *rtPressure) ComputeCommands(ctx context.Context, budgets map[string]int, candidates ...*disruption.Candidate) ([]disruption.Command, error) {
	p.sort(candidates)
	for _, c := range candidates {
		action := p.desk.order(c.Name(), c.Node.UID)
		if action == nil {
			continue
		}
		if budgets[c.NodePool.Name] <= 0 {
			p.desk.write(action.Name, note{message: fmt.Sprintf("disruption budgets of NodePool %s allow no more nodes for reason %s now", c.NodePool.Name, Reason)})
			continue
		}
		command, found, err := p.command(ctx, c, action)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			found = note{message: err.Error()}
		}
		if command.Decision() == disruption.NoOpDecision || !p.desk.hand(action.Name) {
			p.desk.write(action.Name, found)
			continue
		}
		return []disruption.Command{command}, nil
	}
	return nil, nil
}

// sort puts the most critical beneficiaries first, then the oldest actions.
func (p *rtPressure) sort(candidates []*disruption.Candidate) {
	slices.SortStableFunc(candidates, func(a, b *disruption.Candidate) int {
		x, y := p.desk.order(a.Name(), a.Node.UID), p.desk.order(b.Name(), b.Node.UID)
		if x == nil || y == nil {
			return 0
		}
		first, _ := record.Read(x) // it runs, so it can be read
		second, _ := record.Read(y)
		return cmp.Or(cmp.Compare(second.Criticality, first.Criticality), first.Since.Compare(second.Since), cmp.Compare(x.Name, y.Name))
	})
}

// command replaces one node, or closes it where its pods have room on others. Without command, the note says why. On an inventory all of
// whose machines are in use the node's own may be all that there is for some of its pods: where Karpenter may repair such nodes by ending them
// first (gate TerminateFirstRepair), this one is ended, too, and opened anew for the pods that wait then. None of them may be real-time: a
// late container is better off than one that has no core until a machine has gone off and come up again.
func (p *rtPressure) command(ctx context.Context, c *disruption.Candidate, action *v1alpha1.RTAction) (disruption.Command, note, error) {
	results, endFirst, err := disruption.SimulateSchedulingWithReservedFallback(ctx, p.Client, p.Cluster, p.Provisioner, p.Clock, p.Recorder, c,
		options.FromContext(ctx).FeatureGates.TerminateFirstRepair, disruption.SimulationOptions{})
	if err != nil {
		return disruption.Command{}, note{}, fmt.Errorf("simulating where its pods would go: %w", err)
	}
	if endFirst {
		return p.ended(ctx, c, results)
	}
	if !results.AllNonPendingPodsScheduled() {
		return disruption.Command{}, note{impossible: !awaited(results.PodErrors), message: "its pods find no place: " + results.NonPendingPodSchedulingErrors()}, nil
	}
	command := disruption.Command{Candidates: []*disruption.Candidate{c}, Results: results}
	for _, n := range results.NewNodeClaims {
		n.Annotations = lo.Assign(n.Annotations, map[string]string{v1alpha1.AnnotationAction: action.Name})
		command.Replacements = append(command.Replacements, &disruption.Replacement{NodeClaim: n})
	}
	return p.permitted(ctx, command)
}

// ended ends a node before its machine is started again, for such of its pods as have no room on others.
func (p *rtPressure) ended(ctx context.Context, c *disruption.Candidate, results scheduling.Results) (disruption.Command, note, error) {
	snapshot := p.Store.Snapshot()
	for _, n := range results.NewNodeClaims {
		for _, pod := range n.Pods {
			if s, ok := snapshot.Pod(pod.UID); ok && len(s.Governed) > 0 {
				return disruption.Command{}, note{impossible: true, message: fmt.Sprintf(
					"no machine is free, and real-time pod %s/%s has room on no other node while this one would be ended and started again", pod.Namespace, pod.Name)}, nil
			}
		}
	}
	return p.permitted(ctx, disruption.Command{
		Candidates: []*disruption.Candidate{c}, Results: results, TerminateFirstReason: disruption.TerminateFirstNoReservedCapacity,
	})
}

// permitted is a command that leaves every real-time container a core and its budget, and whose node's pods may all be evicted.
func (p *rtPressure) permitted(ctx context.Context, command disruption.Command) (disruption.Command, note, error) {
	snapshot := p.Store.Snapshot()
	if objections := p.housed(ctx, snapshot, &command); len(objections) > 0 {
		return disruption.Command{}, note{impossible: true, message: objections[0].message}, nil
	}
	if why := losesBudget(snapshot, command.Candidates[0].Name()); why != "" {
		return disruption.Command{}, note{impossible: true, message: why}, nil
	}
	why, never, err := kept(ctx, p.Client, p.Clock, command.Candidates[0].Name())
	if why != "" || err != nil {
		return disruption.Command{}, note{impossible: never, message: why}, err
	}
	return command, note{}, nil
}

// awaited tells whether pods find no place only until a node that is coming is there.
func awaited(podErrors map[*corev1.Pod]error) bool {
	for _, err := range podErrors {
		var coming *disruption.UninitializedNodeError
		if errors.As(err, &coming) {
			return true
		}
	}
	return false
}

// close ends a pass, and finds out why nodes that are to be replaced were no candidates.
func (c *Controller) close(ctx context.Context, failed error) {
	why := "Karpenter's queue did not take the command"
	if failed != nil {
		why = failed.Error()
	}
	under := func(name string) bool {
		n := nodeNamed(c.Cluster, name)
		return n != nil && c.Queue.HasAny(n.ProviderID())
	}
	for _, action := range c.desk.settle(under, why) {
		switch {
		case failed != nil:
			c.desk.write(action.Name, note{message: failed.Error()})
		case !c.Cluster.HasSynced():
			c.desk.write(action.Name, note{message: "what Karpenter knows of the cluster is not complete yet"})
		default:
			c.desk.write(action.Name, c.rejected(ctx, nodeNamed(c.Cluster, action.Spec.Node)))
		}
	}
}

// nodeNamed is a copy of what Karpenter knows of a node; nil for nothing.
func nodeNamed(cluster *state.Cluster, name string) *state.StateNode {
	for n := range cluster.Nodes() {
		if n.Name() == name {
			return n.DeepCopy()
		}
	}
	return nil
}

// rejected is why Karpenter does not take a node as a candidate.
func (c *Controller) rejected(ctx context.Context, n *state.StateNode) note {
	if n == nil || n.Node == nil || n.NodeClaim == nil {
		return note{impossible: true, message: "Karpenter does not manage the node"}
	}
	if err := n.ValidateNodeDisruptable(c.Clock); err != nil {
		return note{impossible: state.IsNodeDoNotDisruptError(err), message: err.Error()}
	}
	limits, err := pdb.NewLimits(ctx, c.Client)
	if err != nil {
		return note{message: err.Error()}
	}
	if _, err := n.ValidatePodsDisruptable(ctx, c.Client, limits, c.Clock, c.Recorder); err != nil {
		return note{message: err.Error()}
	}
	return note{message: "Karpenter does not take the node as a candidate: its NodePool or the machines of that are not known"}
}
