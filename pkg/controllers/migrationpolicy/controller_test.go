package migrationpolicy_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migrationpolicy"
)

type tokens struct{ err error }

func (t tokens) Token(context.Context, string, v1alpha1.SecretKey) (string, error) { return "x", t.err }

// reconciled is the condition Ready of a policy, after the controller has looked at it, and how often it was written.
func reconciled(t *testing.T, p *v1alpha1.MigrationPolicy, err error) (condition *metav1.Condition, wait time.Duration, writes int) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(p).WithStatusSubresource(p).Build(), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	})
	c := &migrationpolicy.Controller{Client: api, Tokens: tokens{err}}
	req := reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}}
	var result reconcile.Result
	for range 3 { // what is as it was is not written again
		if result, err = c.Reconcile(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	got := &v1alpha1.MigrationPolicy{}
	if err := api.Get(t.Context(), req.NamespacedName, got); err != nil {
		t.Fatal(err)
	}
	if got.Status.ObservedGeneration != p.Generation {
		t.Errorf("generation %d, want %d", got.Status.ObservedGeneration, p.Generation)
	}
	return meta.FindStatusCondition(got.Status.Conditions, "Ready"), result.RequeueAfter, writes
}

func policyOf(rule string, engine *v1alpha1.PolicyEngine) *v1alpha1.MigrationPolicy {
	return &v1alpha1.MigrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 3},
		Spec:       v1alpha1.MigrationPolicySpec{PolicyEngine: engine, Rules: []v1alpha1.MigrationRule{{Name: "r", Expression: rule, Action: v1alpha1.RuleDeny}}},
	}
}

func TestReadySaysWhetherThePolicyCanBeUsed(t *testing.T) {
	secret := &v1alpha1.PolicyEngine{URL: "https://engine", TokenSecret: &v1alpha1.SecretKey{Name: "a", Key: "b"}}
	for _, c := range []struct {
		policy  *v1alpha1.MigrationPolicy
		err     error
		status  metav1.ConditionStatus
		reason  string
		message string
		wait    time.Duration
	}{
		{policyOf(`true`, nil), nil, metav1.ConditionTrue, "Compiled", "1 rules and 0 windows", 0},
		{policyOf(`nonsense`, nil), nil, metav1.ConditionFalse, "Invalid", "undeclared reference to 'nonsense'", 0},
		{policyOf(`true`, secret), errors.New("reading Secret x/a: not found"), metav1.ConditionFalse, "TokenUnreadable", "reading Secret x/a: not found", time.Minute},
		{policyOf(`true`, secret), nil, metav1.ConditionTrue, "Compiled", "1 rules", time.Minute},
	} {
		got, wait, writes := reconciled(t, c.policy, c.err)
		if got == nil || got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.message) || got.ObservedGeneration != 3 || wait != c.wait || writes != 1 {
			t.Errorf("%+v, again in %s, written %d times, want %+v", got, wait, writes, c)
		}
	}
}

func TestAPolicyThatIsGoneIsLeftAlone(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &migrationpolicy.Controller{Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Tokens: tokens{}}
	if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "gone"}}); err != nil {
		t.Error(err)
	}
}
