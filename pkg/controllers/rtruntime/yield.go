package rtruntime

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// yields lets pods go to the scheduler that the webhook held back while room was made for more critical
// ones. There are few, and not for long, so each looks again every second.
type yields struct{ Dependencies }

// Register implements controller.Controller.
func (y *yields) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("rtruntime.yield").
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(isHeldBack))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(y)
}

// isHeldBack picks the pods with our gate.
func isHeldBack(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: mcv1.GateYield})
}

// Reconcile removes the gate as soon as the webhook would not add it any more.
func (y *yields) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if y.Store.Synced() != nil {
		return reconcile.Result{RequeueAfter: unsynced}, nil
	}
	pod := &corev1.Pod{}
	if err := y.Client.Get(ctx, request.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !isHeldBack(pod) || pod.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	snapshot := y.Store.Snapshot()
	view, ok := snapshot.Pod(pod.UID)
	if !ok {
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	if heldBack(view, snapshot.Preemptions(), y.Clock.Now()) {
		return reconcile.Result{RequeueAfter: progress}, nil
	}
	return settled(reconcile.Result{}, y.letGo(ctx, pod))
}

// heldBack is the webhook's rule: a pod yields to the plans of strictly more critical ones.
func heldBack(pod *state.PodView, plans []state.Preempting, now time.Time) bool {
	return slices.ContainsFunc(live(plans, pod.UID, now), func(p state.Preempting) bool {
		return p.Criticality > criticalityOf(pod)
	})
}

// letGo removes our gate and no other.
func (y *yields) letGo(ctx context.Context, pod *corev1.Pod) error {
	free := pod.DeepCopy()
	free.Spec.SchedulingGates = slices.DeleteFunc(free.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == mcv1.GateYield })
	if err := y.Client.Patch(ctx, free, ifUnchanged(pod)); err != nil {
		return fmt.Errorf("removing scheduling gate %s from pod %s/%s: %w", mcv1.GateYield, pod.Namespace, pod.Name, err)
	}
	return nil
}
