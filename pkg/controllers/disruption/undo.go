package disruption

import (
	"context"
	"fmt"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/opened"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// undo takes a replacement back: no command is begun any more, the one under way is taken out of Karpenter's queue, and
// what it has done to the node and has opened for it goes. A node that is being deleted by then is past that.
func (r replace) undo(ctx context.Context, task orchestration.Task, t target) (rules.Result, error) {
	if !r.desk.callOff(task.Object.Name) {
		return rules.Result{Message: "the command is just being begun"}, nil
	}
	switch {
	case t.command != nil && t.command.Reason() != Reason:
		return rules.Result{Outcome: rules.RolledBack, Message: fmt.Sprintf("the node is being closed for reason %s, which is left to go on", t.command.Reason())}, nil
	case t.command != nil:
		// Karpenter's queue may be working on this command, and may have deleted the node: that shows at the next step.
		r.Cluster.UnmarkForDeletion(r.Gate.takeBack(t.command)...)
		return rules.Result{Message: "the command was taken back"}, nil
	}
	if err := r.clean(ctx, t); err != nil {
		return rules.Result{}, err
	}
	gone, left, err := r.discard(ctx, task.Object)
	if err != nil {
		return rules.Result{}, err
	}
	message := "node " + t.name + " serves as before"
	if len(gone) > 0 {
		message += "; its replacement " + few(gone) + " is discarded"
	}
	if len(left) > 0 {
		message += "; its replacement " + few(left) + " stays, for pods are there already"
	}
	return rules.Result{Outcome: rules.RolledBack, Message: message}, nil
}

// clean takes away what marks the node as disrupted. Karpenter does so too at its next pass, which may be long.
func (r replace) clean(ctx context.Context, t target) error {
	n := nodeNamed(r.Cluster, t.name)
	if n == nil || n.Node == nil || n.NodeClaim == nil || n.NodeClaim.UID != t.claim.UID || r.Queue.HasAny(n.ProviderID()) || n.MarkedForDeletion() || n.RebootInProgress() {
		return nil
	}
	if err := state.RequireNoScheduleTaint(ctx, r.Client, false, n); err != nil {
		return fmt.Errorf("taking the disruption's taint off node %s: %w", t.name, err)
	}
	if err := state.ClearNodeClaimsCondition(ctx, r.Client, r.Clock, karpv1.ConditionTypeDisruptionReason, n); err != nil {
		return fmt.Errorf("clearing the disruption of NodeClaim %s: %w", t.claim.Name, err)
	}
	return nil
}

// discard deletes what was opened for the action, but where pods have come to it already.
func (r replace) discard(ctx context.Context, action *v1alpha1.RTAction) (gone, left []string, err error) {
	list := &karpv1.NodeClaimList{}
	if err := r.Client.List(ctx, list); err != nil {
		return nil, nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	for i := range list.Items {
		claim := &list.Items[i]
		if claim.Annotations[v1alpha1.AnnotationAction] != action.Name {
			continue
		}
		switch stays, err := opened.Discard(ctx, r.Client, r.Reader, claim); {
		case err != nil:
			return nil, nil, err
		case stays:
			left = append(left, claim.Name)
		default:
			gone = append(gone, claim.Name)
		}
	}
	return gone, left, nil
}
