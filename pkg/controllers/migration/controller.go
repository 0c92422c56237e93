package migration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/placement"
	"github.com/mainspring-rt/mainspring/pkg/policy"
)

const (
	// timeout bounds one Reconcile.
	timeout = 30 * time.Second
	// unready is when to ask again whether the cache is complete, or the queue ready.
	unready = 250 * time.Millisecond
	// soon is when to try again what a conflict has stopped.
	soon = 50 * time.Millisecond
	// again is when to look at a migration that is under way, or waits for a limit, should nothing wake the loop before.
	again = 5 * time.Second
	// telling is from when on it is told what a phase waits for.
	telling = 2 * again
	// workers decide side by side: a policy engine may take its time, and so may the API server with what is decided.
	workers = 24
	// lasting is for how long a migration that is over is kept where its object does not say.
	lasting = time.Hour
)

// Actions is the orchestration queue, as far as migrations need it.
type Actions interface {
	Submit(ctx context.Context, r orchestration.Request) (orchestration.Ticket, error)
	Withdraw(ctx context.Context, name, why string) error
	ForCause(cause string) ([]*v1alpha1.RTAction, error)
	Get(name string) (orchestration.Ticket, bool)
	Listen(f func(*v1alpha1.RTAction))
}

// Judge says by which MigrationPolicy a pod is judged, and how.
type Judge interface {
	For(ctx context.Context, pod *corev1.Pod) (*v1alpha1.MigrationPolicy, error)
	Decide(ctx context.Context, q policy.Question) (v1alpha1.MigrationDecision, error)
}

// ReconcilerDependencies are the collaborators of the loop over PodMigrations. All are required.
type ReconcilerDependencies struct {
	Dependencies
	Actions Actions
	// Rooms are what nodes have, and what is left beside what is requested there.
	Rooms func() map[string]placement.Room
	// Threshold is the share of a node's CPU or memory above which it is under pressure: no optional migration brings a node there. 0:
	// any share will do.
	Threshold float64
	// Load is the share of a node's CPU or memory, whichever is more, that is in use. Where that is not known, what is requested counts
	// as in use.
	Load func(node string) (used float64, known bool)
}

// Reconciler admits PodMigrations, has the queue do them, and tells what became of them.
type Reconciler struct {
	ReconcilerDependencies
	waking atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
	// choosing keeps two decisions from taking one place.
	choosing sync.Mutex
	// fresh are decisions that the cache may not show yet.
	fresh map[types.UID]*v1alpha1.PodMigration
	// kept are decisions for which this process has kept cores of the target until their action has them.
	kept map[types.UID]bool
}

// NewReconciler makes the loop. It listens to the queue from now on.
func NewReconciler(d ReconcilerDependencies) *Reconciler {
	r := &Reconciler{ReconcilerDependencies: d, fresh: map[types.UID]*v1alpha1.PodMigration{}, kept: map[types.UID]bool{}}
	d.Actions.Listen(r.wake)
	return r
}

// wake has the loop look at the PodMigration of an action, once it runs.
func (r *Reconciler) wake(action *v1alpha1.RTAction) {
	queue := r.waking.Load()
	if queue == nil || action.Spec.Kind != "Migrate" || len(action.Spec.Pods) != 1 {
		return
	}
	key := types.NamespacedName{Namespace: action.Spec.Pods[0].Namespace, Name: action.Name}
	if uid, ok := strings.CutPrefix(action.Spec.Cause, causePrefix); ok {
		key.Name = "uid:" + uid // no object has such a name: it is looked up in the loop
	}
	(*queue).Add(reconcile.Request{NamespacedName: key})
}

// Register adds the loop to a manager.
func (r *Reconciler) Register(_ context.Context, m manager.Manager) error {
	begin := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.waking.Store(&queue)
		return nil
	})
	return controllerruntime.NewControllerManagedBy(m).
		Named("migration").
		For(&v1alpha1.PodMigration{}).
		WatchesRawSource(begin).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soon, again),
		}).
		Complete(r)
}

// Reconcile takes a migration a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o, err := r.named(ctx, req.NamespacedName)
	if err != nil || o == nil {
		return reconcile.Result{}, err
	}
	if incomplete := r.Store.Synced(); incomplete != nil {
		return reconcile.Result{RequeueAfter: unready}, r.noteDelay(ctx, o, ReasonNotReady, "the controller's view of the cluster is not complete: "+incomplete.Error())
	}
	wait, err := r.further(ctx, o)
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: wait}, nil
	case errors.Is(err, orchestration.ErrNotReady):
		return reconcile.Result{RequeueAfter: unready}, nil
	case errors.As(err, &status) && (apierrors.IsConflict(err) || apierrors.IsNotFound(err)):
		return reconcile.Result{RequeueAfter: soon}, nil // the cache is behind
	}
	return reconcile.Result{}, err
}

// named is the PodMigration that is meant; nil for none.
func (r *Reconciler) named(ctx context.Context, key types.NamespacedName) (*v1alpha1.PodMigration, error) {
	if uid, ok := strings.CutPrefix(key.Name, "uid:"); ok {
		list := &v1alpha1.PodMigrationList{}
		if err := r.Client.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
			return nil, fmt.Errorf("listing PodMigrations of namespace %s: %w", key.Namespace, err)
		}
		for i := range list.Items {
			if string(list.Items[i].UID) == uid {
				return &list.Items[i], nil
			}
		}
		return nil, nil
	}
	o := &v1alpha1.PodMigration{}
	if err := r.Client.Get(ctx, key, o); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return o, nil
}

// further does what is next, and says when to look again.
func (r *Reconciler) further(ctx context.Context, o *v1alpha1.PodMigration) (time.Duration, error) {
	switch {
	case o.Status.Phase.Over():
		return r.retire(ctx, o)
	case o.Labels[v1alpha1.LabelMigrationAction] != "":
		return r.accompany(ctx, o)
	case o.Status.Strategy == "":
		return r.admit(ctx, o)
	}
	return r.drive(ctx, o)
}

// unwanted returns why the migration is no longer wanted; it is empty if the migration is still wanted.
func unwanted(o *v1alpha1.PodMigration) string {
	switch {
	case o.DeletionTimestamp != nil:
		return "its PodMigration was deleted"
	case o.Spec.Abort:
		return "its PodMigration says abort"
	}
	return ""
}

// retire lets a migration that is over go: when it is deleted, and when it has been kept for as long as it says.
func (r *Reconciler) retire(ctx context.Context, o *v1alpha1.PodMigration) (time.Duration, error) {
	r.forget(o.UID)
	if o.DeletionTimestamp != nil {
		after := o.DeepCopy()
		if !controllerutil.RemoveFinalizer(after, v1alpha1.FinalizerMigration) {
			return 0, nil
		}
		if err := r.Client.Patch(ctx, after, client.MergeFrom(o)); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("letting PodMigration %s/%s go: %w", o.Namespace, o.Name, err)
		}
		return 0, nil
	}
	ttl := lasting
	if s := o.Spec.TTLSecondsAfterFinished; s != nil {
		ttl = time.Duration(*s) * time.Second
	}
	if o.Status.CompletionTime != nil {
		if left := o.Status.CompletionTime.Add(ttl).Sub(r.Clock.Now()); left > 0 {
			return left, nil
		}
	}
	if err := r.Client.Delete(ctx, o, client.Preconditions{UID: &o.UID}); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("deleting PodMigration %s/%s: %w", o.Namespace, o.Name, err)
	}
	return soon, nil
}
