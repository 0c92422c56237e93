package simulated

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// faultReason is the reason of Node conditions that a fault has set.
const faultReason = "SimulatedFault"

// failAll breaks the Nodes of victims that are not broken yet. A Node that recovered since, by a
// reboot for example, is not broken again.
func (f *faultController) failAll(ctx context.Context, fault *v1alpha1.SimulatedFault) error {
	for i := range fault.Status.Affected {
		entry := &fault.Status.Affected[i]
		if entry.Applied {
			continue
		}
		if err := f.fail(ctx, fault, nodeName(entry.Name, entry.UID)); err != nil {
			return fmt.Errorf("breaking the Node of NodeClaim %q: %w", entry.Name, err)
		}
		entry.Applied = true
	}
	return nil
}

// fail marks the Node first: the mark is how it is found again when the fault ends.
func (f *faultController) fail(ctx context.Context, fault *v1alpha1.SimulatedFault, name string) error {
	node := &corev1.Node{}
	if err := f.client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := f.kubelets.mark(ctx, node, fault.Name); err != nil {
		return err
	}
	f.recorder.Publish(failedEvent(node, fault))
	if fault.Spec.Condition == "" {
		return f.kubelets.stop(ctx, name)
	}
	return f.kubelets.setCondition(ctx, node, corev1.NodeCondition{
		Type:    corev1.NodeConditionType(fault.Spec.Condition),
		Status:  corev1.ConditionTrue,
		Reason:  faultReason,
		Message: fmt.Sprintf("set by SimulatedFault %q", fault.Name),
	})
}

// recover mends the Nodes that an ended fault has broken.
func (f *faultController) recover(ctx context.Context, fault string) error {
	nodes := &corev1.NodeList{}
	if err := f.client.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if node.Annotations[v1alpha1.AnnotationFailedBy] != fault {
			continue
		}
		if err := f.kubelets.mend(ctx, node); err != nil {
			return err
		}
		f.recorder.Publish(recoveredEvent(node, fault))
	}
	return nil
}
