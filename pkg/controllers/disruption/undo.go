package disruption

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	nodeutils "sigs.k8s.io/karpenter/pkg/utils/node"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
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
		// Whoever is at this command at this moment may have deleted the node: that shows at the next step.
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
		used, err := r.used(ctx, claim)
		if err != nil {
			return nil, nil, err
		}
		if used {
			if err := r.disown(ctx, claim); err != nil {
				return nil, nil, err
			}
			left = append(left, claim.Name)
			continue
		}
		gone = append(gone, claim.Name)
		if claim.DeletionTimestamp != nil {
			continue
		}
		if err := r.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("deleting NodeClaim %s: %w", claim.Name, err)
		}
	}
	return gone, left, nil
}

// used tells whether pods that would have to go elsewhere are on the node of a NodeClaim.
func (r replace) used(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	if claim.Status.NodeName == "" {
		return false, nil
	}
	pods, err := nodeutils.GetPods(ctx, r.Client, claim.Status.NodeName)
	if err != nil {
		return false, fmt.Errorf("listing the pods of node %s: %w", claim.Status.NodeName, err)
	}
	for _, pod := range pods {
		if podutils.IsReschedulable(pod) {
			return true, nil
		}
	}
	return false, nil
}

// disown takes the action's name off what was opened for it and stays: it is a node as any other, and whoever looks after nodes of actions
// that came to nothing would close it.
func (r replace) disown(ctx context.Context, claim *karpv1.NodeClaim) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.Status.NodeName}}
	for _, o := range []client.Object{node, claim.DeepCopy()} {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationAction+`":null}}}`))
		if err := r.Client.Patch(ctx, o, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking annotation %s off %T %s: %w", v1alpha1.AnnotationAction, o, o.GetName(), err)
		}
	}
	return nil
}
