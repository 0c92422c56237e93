package optimizer

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
)

// policyLoop is what the controllers of both kinds of policies do alike: it reads a policy, fills its status, writes
// it, and tells violations that have begun.
type policyLoop[P client.Object] struct {
	client   client.Client
	recorder Recorder
	clock    clock.PassiveClock
	watch    *stopwatch

	kind    string
	status  func(P) any
	accrual func(P) *kcloudv1alpha1.Accrual
	judge   func(context.Context, P, time.Time) (begun []kcloudv1alpha1.Violation, err error)
	observe func(P)
	forget  func(name string)
}

// registerPolicies adds a controller of policies to a manager. Its status does not wake it.
func registerPolicies(m manager.Manager, name string, of client.Object, r reconcile.Reconciler) error {
	return controllerruntime.NewControllerManagedBy(m).Named(name).
		For(of, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Complete(r)
}

// reconcile reads the policy of this name into p.
func (l policyLoop[P]) reconcile(ctx context.Context, key types.NamespacedName, p P) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := l.client.Get(ctx, key, p); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", l.kind, key.Name, err)
	} else if err != nil || !p.GetDeletionTimestamp().IsZero() {
		l.forget(key.Name)
		l.watch.forget(key.Name)
		return reconcile.Result{}, nil
	}
	before, now := p.DeepCopyObject().(P), l.clock.Now()
	begun, err := l.judge(ctx, p, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !equality.Semantic.DeepEqual(l.status(before), l.status(p)) {
		// The lock: what is added up follows on what the API server has.
		err := l.client.Status().Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("patching the status of %s %s: %w", l.kind, key.Name, err)
		}
	}
	if a, earlier := l.accrual(p), l.accrual(before); a != nil && (earlier == nil || !a.Until.Equal(&earlier.Until)) {
		l.watch.mark(key.Name, a, now)
	}
	l.observe(p)
	for _, v := range begun {
		l.recorder.Publish(events.PolicyViolated(p, v.Type, describe(v), string(v.Severity), string(v.Action)))
	}
	return reconcile.Result{RequeueAfter: period}, nil
}
