// Package migrationpolicy says of each MigrationPolicy whether it can be used.
package migrationpolicy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/policy"
)

// Reasons of condition Ready.
const (
	// ReasonCompiled: it can be used.
	ReasonCompiled = "Compiled"
	// ReasonInvalid: something in it cannot be read. It denies all migrations of the pods that it selects.
	ReasonInvalid = "Invalid"
	// ReasonTokenUnreadable: the engine's token cannot be read, so the engine gives no answers.
	ReasonTokenUnreadable = "TokenUnreadable"
)

// ConditionReady is the condition.
const ConditionReady = "Ready"

const (
	// timeout bounds one Reconcile.
	timeout = 15 * time.Second
	// again is when a token is looked for again: no Secret is watched.
	again = time.Minute
)

// Tokens reads the tokens of policy engines.
type Tokens interface {
	Token(ctx context.Context, engine string, s v1alpha1.SecretKey) (string, error)
}

// Controller keeps the status of MigrationPolicies.
type Controller struct {
	Client client.Client
	Tokens Tokens
}

// Register adds the controller to a manager.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).Named("migrationpolicy").
		For(&v1alpha1.MigrationPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(c)
}

// Reconcile compiles the policy and says what came of it.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := &v1alpha1.MigrationPolicy{}
	if err := c.Client.Get(ctx, req.NamespacedName, p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !p.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	_, errs := policy.Compile(&p.Spec)
	after := p.DeepCopy()
	after.Status.ObservedGeneration = p.Generation
	meta.SetStatusCondition(&after.Status.Conditions, ready(p, errs, c.token(ctx, p)))
	wait := reconcile.Result{}
	if p.Spec.PolicyEngine != nil && p.Spec.PolicyEngine.TokenSecret != nil {
		wait.RequeueAfter = again
	}
	if equality.Semantic.DeepEqual(p.Status, after.Status) {
		return wait, nil
	}
	if err := c.Client.Status().Patch(ctx, after, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("patching the status of MigrationPolicy %s: %w", p.Name, err)
	}
	return wait, nil
}

// token is why the engine's token cannot be read; nil: it can, or there is none.
func (c *Controller) token(ctx context.Context, p *v1alpha1.MigrationPolicy) error {
	if p.Spec.PolicyEngine == nil || p.Spec.PolicyEngine.TokenSecret == nil {
		return nil
	}
	_, err := c.Tokens.Token(ctx, p.Spec.PolicyEngine.URL, *p.Spec.PolicyEngine.TokenSecret)
	return err
}

func ready(p *v1alpha1.MigrationPolicy, errs field.ErrorList, token error) metav1.Condition {
	c := metav1.Condition{Type: ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation}
	switch {
	case len(errs) > 0:
		c.Reason, c.Message = ReasonInvalid, errs.ToAggregate().Error()+". Until that is corrected no pod that it selects is migrated"
	case token != nil:
		c.Reason, c.Message = ReasonTokenUnreadable, token.Error()+". Until it is there the policy engine gives no answers, and its failurePolicy counts"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonCompiled
		c.Message = fmt.Sprintf("%d rules and %d windows", len(p.Spec.Rules), len(p.Spec.Windows))
	}
	return c
}
