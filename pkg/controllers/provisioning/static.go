package provisioning

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	static "sigs.k8s.io/karpenter/pkg/controllers/static/provisioning"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/utils/nodepool"
)

const (
	// ConditionCapacityAvailable is on every static NodePool: whether the provider has the machines that it wants.
	ConditionCapacityAvailable = "CapacityAvailable"
	// ReasonLaunchFailed is that of the condition, and of the Event, while the provider has not.
	ReasonLaunchFailed = "LaunchFailed"
	// staticAtOnce is how many NodePools are reconciled at once, as Karpenter does.
	staticAtOnce = 10
)

// StaticDependencies are the collaborators of Static. All are required.
type StaticDependencies struct {
	Clock clock.Clock
	// Client reads from a cache.
	Client   client.Client
	Recorder events.Recorder
	Launches *Launches
}

// Static creates NodeClaims for NodePools with a fixed number of nodes, as Karpenter's controller does, but backs off where the provider has no
// machine for one. Karpenter deletes a NodeClaim that finds none and creates the next at once; and while any NodeClaim has no machine yet, its
// cluster state counts as incomplete, and no pod of any NodePool is planned for.
type Static struct {
	StaticDependencies
	karpenter *static.Controller
}

// NewStatic makes one around Karpenter's.
func NewStatic(d StaticDependencies, karpenter *static.Controller) *Static {
	return &Static{StaticDependencies: d, karpenter: karpenter}
}

var _ controller.Controller = (*Static)(nil)

// Register implements controller.Controller. It watches what Karpenter's controller watches.
func (s *Static) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named(s.karpenter.Name()).
		For(&karpv1.NodePool{}, builder.WithPredicates(nodepool.IsManagedPredicateFuncs(s.Launches), nodepool.IsStaticPredicateFuncs(), predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return static.HasNodePoolReplicaOrStatusChanged(e.ObjectOld.(*karpv1.NodePool), e.ObjectNew.(*karpv1.NodePool))
			},
			DeleteFunc:  func(event.DeleteEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		})).
		Watches(&karpv1.NodeClaim{}, nodepool.NodeClaimEventHandler(nodepool.WithClient(m.GetClient()), nodepool.WithStaticOnly), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
			},
			GenericFunc: func(event.GenericEvent) bool { return false },
		})).
		WithOptions(runtimecontroller.Options{MaxConcurrentReconciles: staticAtOnce}).
		Complete(reconcile.AsReconciler(m.GetClient(), s))
}

// Reconcile creates the NodeClaims that a NodePool lacks, unless the last launches failed and the next is not due yet.
func (s *Static) Reconcile(ctx context.Context, pool *karpv1.NodePool) (reconcile.Result, error) {
	if !nodepool.IsManaged(pool, s.Launches) {
		return reconcile.Result{}, nil
	}
	failed := s.Launches.of(pool.Name)
	if err := s.writeCapacity(ctx, pool, failed); err != nil {
		return reconcile.Result{}, err
	}
	if left := failed.next.Sub(s.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	return s.karpenter.Reconcile(ctx, pool)
}

// writeCapacity keeps ConditionCapacityAvailable, and tells by an Event that machines are lacking. A write that meets another version is left to the
// next look.
func (s *Static) writeCapacity(ctx context.Context, stored *karpv1.NodePool, failed failedLaunches) error {
	pool := stored.DeepCopy()
	conditions := pool.StatusConditions(status.WithClock(s.Clock))
	changed := false
	if failed.times == 0 {
		changed = conditions.SetTrue(ConditionCapacityAvailable)
	} else {
		changed = conditions.SetFalse(ConditionCapacityAvailable, ReasonLaunchFailed,
			fmt.Sprintf("launches failed %d times in a row; the next is due at %s: %s", failed.times, failed.next.UTC().Format(time.RFC3339), failed.why))
	}
	if !changed {
		return nil
	}
	err := s.Client.Status().Patch(ctx, pool, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("writing condition %s of NodePool %s: %w", ConditionCapacityAvailable, pool.Name, err)
	}
	if failed.times > 0 {
		s.Recorder.Publish(events.Event{
			InvolvedObject: pool, Type: corev1.EventTypeWarning, Reason: ReasonLaunchFailed, DedupeValues: []string{string(pool.UID), failed.why},
			Message: fmt.Sprintf("No machine for a node of the pool: %s", failed.why),
		})
	}
	return nil
}
