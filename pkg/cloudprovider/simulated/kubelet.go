package simulated

import (
	"context"
	"fmt"
	"math"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// leaseHolder holds the lease of a Node whose kubelet is stopped.
const leaseHolder = "mainspring-simulated-fault"

// forever, in seconds, outlasts every simulation.
const forever = math.MaxInt32

// kubelets stops, starts and breaks simulated kubelets. kwok's controller plays the kubelet of a
// Node for as long as it holds the Node's lease: whoever takes the lease away without renewing it
// has stopped the kubelet, with its pods. (Removing kwok's annotation from the Node does not: kwok
// v0.8 would go on renewing the lease.)
type kubelets struct {
	client client.Client
	clock  clock.Clock
}

// stop takes the Node's lease from kwok and leaves its renewal time, so that the Node becomes
// Ready=Unknown as that of a dead kubelet does. It returns a not-found error while there is no lease:
// kwok has not begun to play the kubelet, or plays it without leases.
func (k *kubelets) stop(ctx context.Context, node string) error {
	return k.updateLease(ctx, node, func(spec *coordinationv1.LeaseSpec) {
		spec.HolderIdentity = ptr.To(leaseHolder)
		spec.LeaseDurationSeconds = ptr.To[int32](forever)
	})
}

// start gives the lease back: kwok takes a lease without holder at its next attempt. Without a lease
// there is nothing to give back.
func (k *kubelets) start(ctx context.Context, node string) error {
	return client.IgnoreNotFound(k.updateLease(ctx, node, func(spec *coordinationv1.LeaseSpec) {
		if ptr.Deref(spec.HolderIdentity, "") == leaseHolder {
			spec.HolderIdentity = nil
		}
	}))
}

func (k *kubelets) updateLease(ctx context.Context, node string, change func(*coordinationv1.LeaseSpec)) error {
	lease := &coordinationv1.Lease{}
	if err := k.client.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: node}, lease); err != nil {
		return fmt.Errorf("getting lease of Node %q: %w", node, err)
	}
	before := lease.Spec.DeepCopy()
	change(&lease.Spec)
	if ptr.Equal(before.HolderIdentity, lease.Spec.HolderIdentity) && ptr.Equal(before.LeaseDurationSeconds, lease.Spec.LeaseDurationSeconds) {
		return nil
	}
	if err := k.client.Update(ctx, lease); err != nil {
		return fmt.Errorf("updating lease of Node %q: %w", node, err)
	}
	return nil
}

// setCondition writes one condition of a Node and leaves the others alone. It does nothing where
// the condition has that status and reason already.
func (k *kubelets) setCondition(ctx context.Context, node *corev1.Node, c corev1.NodeCondition) error {
	for _, present := range node.Status.Conditions {
		if present.Type == c.Type && present.Status == c.Status && present.Reason == c.Reason {
			return nil
		}
	}
	now := metav1.NewTime(k.clock.Now())
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	changed := node.DeepCopy()
	changed.Status.Conditions = append(withoutCondition(changed.Status.Conditions, c.Type), c)
	// The strategic merge patch is keyed by condition type: others' writes in between are kept.
	if err := k.client.Status().Patch(ctx, changed, client.StrategicMergeFrom(node)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing condition %s of Node %q: %w", c.Type, node.Name, err)
	}
	return nil
}

// clearCondition removes a condition of a Node.
func (k *kubelets) clearCondition(ctx context.Context, node *corev1.Node, conditionType corev1.NodeConditionType) error {
	changed := node.DeepCopy()
	changed.Status.Conditions = withoutCondition(changed.Status.Conditions, conditionType)
	if len(changed.Status.Conditions) == len(node.Status.Conditions) {
		return nil
	}
	if err := k.client.Status().Patch(ctx, changed, client.StrategicMergeFrom(node)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing condition %s of Node %q: %w", conditionType, node.Name, err)
	}
	return nil
}

func withoutCondition(conditions []corev1.NodeCondition, conditionType corev1.NodeConditionType) []corev1.NodeCondition {
	var kept []corev1.NodeCondition
	for _, c := range conditions {
		if c.Type != conditionType {
			kept = append(kept, c)
		}
	}
	return kept
}

// mark writes the name of the fault that broke a Node on it, or removes it when empty.
func (k *kubelets) mark(ctx context.Context, node *corev1.Node, fault string) error {
	if node.Annotations[v1alpha1.AnnotationFailedBy] == fault {
		return nil
	}
	changed := node.DeepCopy()
	if fault == "" {
		delete(changed.Annotations, v1alpha1.AnnotationFailedBy)
	} else {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationFailedBy, fault)
	}
	if err := k.client.Patch(ctx, changed, client.MergeFrom(node)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking Node %q: %w", node.Name, err)
	}
	return nil
}

// mend undoes what a fault did to a Node: its conditions, its kubelet, and last the mark, so that
// mending is taken up again where it stopped.
func (k *kubelets) mend(ctx context.Context, node *corev1.Node) error {
	for _, c := range node.Status.Conditions {
		if c.Reason == faultReason {
			if err := k.clearCondition(ctx, node, c.Type); err != nil {
				return err
			}
		}
	}
	if err := k.start(ctx, node.Name); err != nil {
		return err
	}
	return k.mark(ctx, node, "")
}
