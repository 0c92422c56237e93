package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
)

const (
	// ConditionBudgetsValid is on every NodePool: whether Karpenter can read its disruption budgets. Karpenter takes a budget that it cannot read for
	// one of zero nodes, at any time, and says so in its log alone.
	ConditionBudgetsValid = "DisruptionBudgetsValid"
	// ReasonBudgetInvalid is that of the condition, and of the Event, while one cannot be read.
	ReasonBudgetInvalid = "BudgetInvalid"
	// budgetsTimeout bounds one look.
	budgetsTimeout = 10 * time.Second
)

// InvalidBudget says which field of the NodePool's disruption budgets for the reason cannot be read, its value, and what would be right. Empty: all can be
// read. An empty reason stands for all.
func InvalidBudget(pool *karpv1.NodePool, clk clock.Clock, reason karpv1.DisruptionReason) string {
	for i := range pool.Spec.Disruption.Budgets {
		budget := &pool.Spec.Disruption.Budgets[i]
		if reason != "" && budget.Reasons != nil && !slices.Contains(budget.Reasons, reason) {
			continue
		}
		if _, err := budget.GetAllowedDisruptions(clk, 1); err != nil {
			return invalidBudget(i, budget)
		}
	}
	return ""
}

func invalidBudget(at int, budget *karpv1.Budget) string {
	field := fmt.Sprintf("spec.disruption.budgets[%d]", at)
	schedule := lo.FromPtr(budget.Schedule)
	active := *budget
	active.Schedule, active.Duration = nil, nil
	if _, err := active.GetAllowedDisruptions(clock.RealClock{}, 1); err != nil {
		return fmt.Sprintf("%s.nodes is %q; want a number of nodes or a percentage, such as \"10%%\"", field, budget.Nodes)
	}
	if zone, _, found := strings.Cut(schedule, " "); found && strings.Contains(zone, "TZ=") {
		return fmt.Sprintf("%s.schedule is %q; want it without %s: schedules of budgets are in UTC", field, schedule, zone)
	}
	return fmt.Sprintf("%s.schedule is %q; want five fields of cron, such as \"0 9 * * mon-fri\" (minute 0-59, hour 0-23, day 1-31, month 1-12, weekday 0-6)", field, schedule)
}

// BudgetsDependencies are the collaborators of the controller. All are required.
type BudgetsDependencies struct {
	Clock clock.Clock
	// Client reads from a cache.
	Client   client.Client
	Recorder events.Recorder
}

// NewBudgets makes the controller that keeps ConditionBudgetsValid.
func NewBudgets(d BudgetsDependencies) controller.Controller { return &budgets{d} }

type budgets struct{ BudgetsDependencies }

// Register implements controller.Controller.
func (b *budgets) Register(_ context.Context, m manager.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("disruption.budgets").
		For(&karpv1.NodePool{}).
		WithEventFilter(predicate.GenerationChangedPredicate{}).
		Complete(b)
}

// Reconcile writes the condition of one NodePool, and tells a change for the worse by an Event.
func (b *budgets) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, budgetsTimeout)
	defer cancel()
	pool := &karpv1.NodePool{}
	if err := b.Client.Get(ctx, request.NamespacedName, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	stored := pool.DeepCopy()
	invalid := InvalidBudget(pool, b.Clock, "")
	conditions := pool.StatusConditions(status.WithClock(b.Clock))
	changed := false
	if invalid == "" {
		changed = conditions.SetTrue(ConditionBudgetsValid)
	} else {
		changed = conditions.SetFalse(ConditionBudgetsValid, ReasonBudgetInvalid, invalid+". Until then no node of the pool is disrupted for the budget's reasons")
	}
	if !changed {
		return reconcile.Result{}, nil
	}
	// The list of conditions is replaced as a whole.
	err := b.Client.Status().Patch(ctx, pool, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: time.Second}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("writing condition %s of NodePool %s: %w", ConditionBudgetsValid, pool.Name, err)
	case invalid != "":
		b.Recorder.Publish(events.Event{InvolvedObject: pool, Type: corev1.EventTypeWarning, Reason: ReasonBudgetInvalid, Message: invalid, DedupeValues: []string{string(pool.UID), invalid}})
	}
	return reconcile.Result{}, nil
}
