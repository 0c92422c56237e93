package ladder

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/record"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// FieldManager owns the condition RTPressure and nothing else. Server-side apply removes a condition that the same manager
// applied before and now leaves out.
const FieldManager = "mainspring-ladder"

const taintKey = mcv1.TaintPressure

// longestMessage is the maximum length of a condition's message.
const longestMessage = 1024

// applyEpisode writes the condition to exactly the version of the RTNode on which the controller decided, so that it begins an
// episode only once.
func (l *ladder) applyEpisode(ctx context.Context, n *state.NodeView, e Episode) error {
	condition := e.condition()
	condition.Message = record.Short(condition.Message, longestMessage)
	applied := &v1alpha1.RTNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "RTNode"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.RTNode.UID, ResourceVersion: n.RTNode.ResourceVersion},
		Status:     v1alpha1.RTNodeStatus{Conditions: []metav1.Condition{condition}},
	}
	data, err := json.Marshal(applied)
	if err != nil {
		return fmt.Errorf("encoding condition %s: %w", condition.Type, err)
	}
	patch := client.RawPatch(types.ApplyPatchType, data)
	if err := l.Client.Status().Patch(ctx, applied, patch, client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying condition %s of RTNode %s: %w", condition.Type, n.Name, err)
	}
	return nil
}

// setTaint puts the taint on a Node, or takes it away.
func (l *ladder) setTaint(ctx context.Context, n *state.NodeView, on bool) error {
	node := &corev1.Node{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
		return fmt.Errorf("reading node %s: %w", n.Name, err)
	}
	if node.UID != n.UID {
		return nil
	}
	next := node.DeepCopy()
	next.Spec.Taints = slices.DeleteFunc(next.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintKey })
	if on {
		next.Spec.Taints = append(next.Spec.Taints, corev1.Taint{Key: taintKey, Effect: corev1.TaintEffectNoSchedule})
	}
	if len(next.Spec.Taints) == len(node.Spec.Taints) {
		return nil
	}
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := l.Client.Patch(ctx, next, patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("tainting node %s: %w", n.Name, err)
	}
	return nil
}
