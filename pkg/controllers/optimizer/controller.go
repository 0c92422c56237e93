package optimizer

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

const (
	// timeout bounds one Reconcile.
	timeout = 30 * time.Second
	// period is how often a workload is looked at: pods, nodes and prices change without the WorkloadOptimizer.
	period = 15 * time.Second
)

// Recorder records Events.
type Recorder interface {
	Publish(list ...events.Event)
}

// Controller keeps the status of WorkloadOptimizers.
type Controller struct {
	Client   client.Client
	Readings *Readings
	Recorder Recorder
	Clock    clock.PassiveClock
}

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).Named("workloadoptimizer").
		For(&kcloudv1alpha1.WorkloadOptimizer{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Complete(c)
}

// Reconcile looks at one workload, and writes its status where that has changed.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	wo := &kcloudv1alpha1.WorkloadOptimizer{}
	if err := c.Client.Get(ctx, req.NamespacedName, wo); err != nil {
		if client.IgnoreNotFound(err) == nil {
			metrics.ForgetWorkload(req.Namespace, req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !wo.DeletionTimestamp.IsZero() {
		metrics.ForgetWorkload(req.Namespace, req.Name)
		return reconcile.Result{}, nil
	}
	j := newJudgement(wo, c.Clock.Now())
	if err := c.look(ctx, wo, j); err != nil {
		return reconcile.Result{}, err
	}
	if err := c.write(ctx, wo, j); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: period}, nil
}

func (c *Controller) look(ctx context.Context, wo *kcloudv1alpha1.WorkloadOptimizer, j *judgement) error {
	if wo.Annotations[kcloudv1alpha1.AnnotationDisabled] == "true" {
		j.suspend()
		return nil
	}
	if err := validate(wo); err != nil {
		j.refuse(err)
		return nil
	}
	m, err := c.Readings.readMarket(ctx)
	if err != nil {
		return err
	}
	f, err := readFigures(ctx, c.Client, m, wo)
	if err != nil {
		return err
	}
	j.judge(f, m)
	return nil
}

func (c *Controller) write(ctx context.Context, wo *kcloudv1alpha1.WorkloadOptimizer, j *judgement) error {
	s := j.status
	if !equality.Semantic.DeepEqual(wo.Status, s) {
		after := wo.DeepCopy()
		after.Status = s
		err := c.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(wo, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("patching the status of WorkloadOptimizer %s/%s: %w", wo.Namespace, wo.Name, err)
		}
	}
	if !meta.IsStatusConditionTrue(s.Conditions, kcloudv1alpha1.ConditionReady) {
		metrics.ForgetWorkload(wo.Namespace, wo.Name) // of which nothing is known
		return nil
	}
	metrics.ObserveWorkload(wo.Namespace, wo.Name, s.CurrentCost, s.CurrentPower, s.OptimizationScore)
	if s.Phase == kcloudv1alpha1.PhaseOptimized && wo.Status.Phase != kcloudv1alpha1.PhaseOptimized {
		metrics.WorkloadOptimizations.WithLabelValues(wo.Namespace, wo.Name).Inc()
		c.Recorder.Publish(events.WorkloadOptimized(wo, s.CurrentCost, s.CurrentPower, s.AssignedNode))
	}
	return nil
}
