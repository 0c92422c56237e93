package simulated

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	if err := f.mark(ctx, node, fault.Name); err != nil {
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

// mark writes the name of the fault on a Node, or removes it when empty.
func (f *faultController) mark(ctx context.Context, node *corev1.Node, fault string) error {
	if node.Annotations[v1alpha1.AnnotationFailedBy] == fault {
		return nil
	}
	stored := node.DeepCopy()
	if fault == "" {
		delete(node.Annotations, v1alpha1.AnnotationFailedBy)
	} else {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[v1alpha1.AnnotationFailedBy] = fault
	}
	if err := f.client.Patch(ctx, node, client.MergeFrom(stored)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking Node %q: %w", node.Name, err)
	}
	return nil
}

// recover mends the Nodes that an ended fault has broken. The mark goes last, so that mending is
// taken up again where it stopped.
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
		if err := f.mark(ctx, node, ""); err != nil {
			return err
		}
	}
	return nil
}

// mend starts the kubelet and clears every condition that a fault has set.
func (k *kubelets) mend(ctx context.Context, node *corev1.Node) error {
	for _, c := range node.Status.Conditions {
		if c.Reason == faultReason {
			if err := k.clearCondition(ctx, node, c.Type); err != nil {
				return err
			}
		}
	}
	if err := k.start(ctx, node.Name); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
