package simulated

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// defaultNotice is EC2's.
const defaultNotice = 2 * time.Minute

// shutdownReason is the reason of condition Ready on a Node whose machine was taken away.
const shutdownReason = "SimulatedShutdown"

// interruptAll gives notice to every victim, takes away those whose notice has ended, and returns
// when the next notice ends.
func (f *faultController) interruptAll(ctx context.Context, fault *v1alpha1.SimulatedFault) (time.Time, error) {
	var next time.Time
	for i := range fault.Status.Affected {
		entry := &fault.Status.Affected[i]
		end, err := f.interrupt(ctx, fault, entry)
		if err != nil {
			return time.Time{}, fmt.Errorf("interrupting NodeClaim %q: %w", entry.Name, err)
		}
		entry.Applied = true
		if !end.IsZero() && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	return next, nil
}

// interrupt does for one victim what is due: notice, drain (by deleting the NodeClaim, as a provider
// does on its cloud's notice), end. It returns when the notice ends, or zero when all is done. A
// NodeClaim that is gone needs nothing any more.
func (f *faultController) interrupt(ctx context.Context, fault *v1alpha1.SimulatedFault, entry *v1alpha1.AffectedNodeClaim) (time.Time, error) {
	claim := &karpv1.NodeClaim{}
	if err := f.client.Get(ctx, types.NamespacedName{Name: entry.Name}, claim); err != nil {
		return time.Time{}, client.IgnoreNotFound(err)
	}
	if claim.UID != entry.UID {
		return time.Time{}, nil
	}
	end, err := f.announce(ctx, claim, entry.Time.Add(notice(fault)))
	if err != nil {
		return time.Time{}, err
	}
	f.recorder.Publish(interruptedEvent(claim, fault, end))
	if claim.DeletionTimestamp.IsZero() {
		if err := f.client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
			return time.Time{}, fmt.Errorf("draining: %w", err)
		}
	}
	if f.clock.Now().Before(end) {
		return end, nil
	}
	return time.Time{}, f.takeAway(ctx, claim)
}

func notice(fault *v1alpha1.SimulatedFault) time.Duration {
	if fault.Spec.Notice == nil {
		return defaultNotice
	}
	return fault.Spec.Notice.Duration
}

// announce writes on the NodeClaim when its machine ends, rounded up to the full second, and returns
// what is written there. From then on Get and List go by it.
func (f *faultController) announce(ctx context.Context, claim *karpv1.NodeClaim, end time.Time) (time.Time, error) {
	if at, ok := terminateAt(claim); ok {
		return at, nil
	}
	at := end.Add(time.Second - 1).Truncate(time.Second).UTC()
	stored := claim.DeepCopy()
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	claim.Annotations[v1alpha1.AnnotationTerminateAt] = at.Format(time.RFC3339)
	if err := f.client.Patch(ctx, claim, client.MergeFrom(stored)); err != nil {
		return time.Time{}, fmt.Errorf("announcing its end: %w", err)
	}
	return at, nil
}

// takeAway stops the kubelet and reports the Node as shut down. Karpenter then finds that the
// machine is gone and lets go of the Node.
func (f *faultController) takeAway(ctx context.Context, claim *karpv1.NodeClaim) error {
	name, _ := nodeOf(claim.Status.ProviderID)
	node := &corev1.Node{}
	if err := f.client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := f.kubelets.stop(ctx, name); client.IgnoreNotFound(err) != nil {
		return err
	}
	f.recorder.Publish(terminatedEvent(node))
	return f.kubelets.setCondition(ctx, node, corev1.NodeCondition{
		Type:    corev1.NodeReady,
		Status:  corev1.ConditionFalse,
		Reason:  shutdownReason,
		Message: "the machine was taken away at the end of its interruption notice",
	})
}
