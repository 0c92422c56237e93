package limits

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
)

// Consolidation is what Karpenter's cluster state is told: that nodes may have become cheaper to replace than when it last looked.
type Consolidation interface {
	MarkUnconsolidated() time.Time
}

// Changes tells Karpenter's consolidation when policies change, when NodePools come under another one, and when peak
// hours begin or end. Without it, consolidation looks again after five minutes.
type Changes struct {
	Client  client.Reader
	Cluster Consolidation
	Clock   clock.PassiveClock
}

// Register adds the controller to a manager.
func (c *Changes) Register(_ context.Context, m manager.Manager) error {
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return controllerruntime.NewControllerManagedBy(m).Named("policylimits").
		Watches(&kcloudv1alpha1.CostPolicy{}, handler.EnqueueRequestsFromMapFunc(all)).
		Watches(&kcloudv1alpha1.PowerPolicy{}, handler.EnqueueRequestsFromMapFunc(all)).
		Watches(&karpenterv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(all)).
		WithEventFilter(predicate.And(changed, namesPolicy())).
		Complete(c)
}

// all has every change become the same request.
func all(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "policies"}}}
}

// namesPolicy lets changes of NodePools through that change which policies are theirs, and all changes of policies.
func namesPolicy() predicate.Predicate {
	named := func(o client.Object) [2]string {
		return [2]string{o.GetAnnotations()[kcloudv1alpha1.AnnotationCostPolicy], o.GetAnnotations()[kcloudv1alpha1.AnnotationPowerPolicy]}
	}
	of := func(o client.Object) bool {
		_, pool := o.(*karpenterv1.NodePool)
		return !pool || named(o) != [2]string{}
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return of(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return of(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			_, pool := e.ObjectNew.(*karpenterv1.NodePool)
			return !pool || !equality.Semantic.DeepEqual(named(e.ObjectOld), named(e.ObjectNew))
		},
	}
}

// Reconcile has consolidation look again, and comes back at the next edge of peak hours.
func (c *Changes) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	c.Cluster.MarkUnconsolidated()
	list := &kcloudv1alpha1.PowerPolicyList{}
	if err := c.Client.List(ctx, list); err != nil {
		return reconcile.Result{}, err
	}
	var hours []string
	for i := range list.Items {
		if s := list.Items[i].Spec.PowerSchedulingPolicy; s != nil && s.PeakPowerAvoidance {
			hours = append(hours, s.PeakPowerHours...)
		}
	}
	if len(hours) == 0 {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: untilEdge(hours, c.Clock.Now())}, nil
}
