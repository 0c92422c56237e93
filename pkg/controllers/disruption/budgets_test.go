package disruption_test

import (
	"strings"
	"testing"
	"time"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpentertest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
)

func scheduled(schedule string, reasons ...karpv1.DisruptionReason) karpv1.Budget {
	return karpv1.Budget{Nodes: "0", Schedule: &schedule, Duration: &metav1.Duration{Duration: 16 * time.Hour}, Reasons: reasons}
}

func withBudgets(budgets ...karpv1.Budget) *karpv1.NodePool {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "edge", Generation: 1}}
	pool.Spec.Disruption.Budgets = budgets
	return pool
}

// A budget that Karpenter cannot read is named, with its value and what would be right; one for other reasons is no matter.
func TestInvalidBudgetsAreNamed(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	for what, tc := range map[string]struct {
		budgets []karpv1.Budget
		want    []string
	}{
		"none":              {nil, nil},
		"always":            {[]karpv1.Budget{{Nodes: "50%"}}, nil},
		"a good schedule":   {[]karpv1.Budget{scheduled("0 9 * * mon-fri")}, nil},
		"an hour of 25":     {[]karpv1.Budget{{Nodes: "50%"}, scheduled("0 25 * * mon-fri")}, []string{`spec.disruption.budgets[1].schedule is "0 25 * * mon-fri"`, "hour 0-23"}},
		"a time zone":       {[]karpv1.Budget{scheduled("TZ=Asia/Seoul 0 9 * * mon-fri")}, []string{`budgets[0].schedule is "TZ=Asia/Seoul 0 9 * * mon-fri"`, "without TZ=Asia/Seoul", "UTC"}},
		"cron's own zone":   {[]karpv1.Budget{scheduled("CRON_TZ=Asia/Seoul 0 9 * * *")}, []string{"without CRON_TZ=Asia/Seoul"}},
		"six fields":        {[]karpv1.Budget{scheduled("0 0 9 * * mon-fri")}, []string{"five fields"}},
		"no number":         {[]karpv1.Budget{{Nodes: "ten"}}, []string{`budgets[0].nodes is "ten"`, "percentage"}},
		"for other reasons": {[]karpv1.Budget{scheduled("0 25 * * *", karpv1.DisruptionReasonEmpty)}, nil},
		"for this reason":   {[]karpv1.Budget{scheduled("0 25 * * *", disruption.Reason)}, []string{"budgets[0].schedule"}},
	} {
		got := disruption.InvalidBudget(withBudgets(tc.budgets...), clk, disruption.Reason)
		if (got == "") != (tc.want == nil) {
			t.Errorf("%s: %q", what, got)
		}
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q does not say %q", what, got, want)
			}
		}
	}
	if got := disruption.InvalidBudget(withBudgets(scheduled("0 25 * * *", karpv1.DisruptionReasonEmpty)), clk, ""); !strings.Contains(got, "budgets[0]") {
		t.Errorf("for any reason: %q", got)
	}
}

// The NodePool says so until the budget is mended, and one Event tells it.
func TestANodePoolTellsOfItsInvalidBudget(t *testing.T) {
	pool := withBudgets(scheduled("0 25 * * *"))
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(pool).WithStatusSubresource(pool).Build()
	recorder := karpentertest.NewEventRecorder()
	b := disruption.NewBudgets(disruption.BudgetsDependencies{Clock: clocktesting.NewFakeClock(time.Now()), Client: c, Recorder: recorder}).(reconcile.Reconciler)
	look := func() *karpv1.NodePool {
		t.Helper()
		if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pool)}); err != nil {
			t.Fatal(err)
		}
		got := &karpv1.NodePool{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pool), got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	for range 2 {
		got := look()
		if condition := got.StatusConditions().Get(disruption.ConditionBudgetsValid); !condition.IsFalse() || condition.Reason != disruption.ReasonBudgetInvalid || !strings.Contains(condition.Message, "0 25 * * *") {
			t.Errorf("%+v", condition)
		}
		if n := recorder.Calls(disruption.ReasonBudgetInvalid); n != 1 {
			t.Errorf("%d Events", n)
		}
	}
	mended := look()
	mended.Spec.Disruption.Budgets[0].Schedule = lo.ToPtr("0 9 * * *")
	if err := c.Update(t.Context(), mended); err != nil {
		t.Fatal(err)
	}
	if condition := look().StatusConditions().Get(disruption.ConditionBudgetsValid); !condition.IsTrue() {
		t.Errorf("mended: %+v", condition)
	}
}
