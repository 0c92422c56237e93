package optimizer_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/optimizer"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

func (w *world) cost() *kcloudv1alpha1.CostPolicy {
	w.t.Helper()
	if err := w.reconcileCost(w.client); err != nil {
		w.t.Fatal(err)
	}
	return w.readCost()
}

// reconcileCost is what a process does that has just started.
func (w *world) reconcileCost(c client.Client) error {
	readings := &optimizer.Readings{Client: c, CloudProvider: w.provider, Clock: w.clock}
	policies := &optimizer.CostPolicies{Client: c, Readings: readings, Recorder: w, Clock: w.clock}
	_, err := policies.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}})
	return err
}

func (w *world) readCost() *kcloudv1alpha1.CostPolicy {
	w.t.Helper()
	p := &kcloudv1alpha1.CostPolicy{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: "p"}, p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) power() *kcloudv1alpha1.PowerPolicy {
	w.t.Helper()
	policies := &optimizer.PowerPolicies{Client: w.client, Readings: &optimizer.Readings{Client: w.client, CloudProvider: w.provider, Clock: w.clock}, Recorder: w, Clock: w.clock}
	if _, err := policies.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
		w.t.Fatal(err)
	}
	p := &kcloudv1alpha1.PowerPolicy{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: "p"}, p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// pass lets time go by, looking at the policy every two minutes.
func (w *world) pass(d time.Duration, look func()) {
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
		w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
		look()
	}
}

func expectCondition(t *testing.T, list []metav1.Condition, condition string, want metav1.ConditionStatus, reason, text string) {
	t.Helper()
	c := meta.FindStatusCondition(list, condition)
	if c == nil || c.Status != want || c.Reason != reason || !strings.Contains(c.Message, text) {
		t.Errorf("condition %s is %+v, want %s, %s, %q", condition, c, want, reason, text)
	}
}

// A policy without selectors has the price of every node, of empty ones, too.
func TestACostPolicyOfAllPodsHasThePriceOfAllNodes(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.node("n2", "m4", "spot")
	w.pod("a", "n1", "1", "4Gi")
	w.create(test.CostPolicy("p"))
	s := w.cost().Status
	if !near(s.CostPerHour, 3.2) || !near(s.IdleCostPerHour, 2.7) || s.Pods != 1 || s.Nodes != 2 || s.SpotNodes != 1 || s.Phase != kcloudv1alpha1.PolicyActive {
		t.Errorf("%+v", s)
	}
	expectCondition(t, s.Conditions, kcloudv1alpha1.ConditionDataQuality, metav1.ConditionTrue, optimizer.ReasonModelled, "")
	expectCondition(t, s.Conditions, kcloudv1alpha1.ConditionWithinLimits, metav1.ConditionTrue, optimizer.ReasonKept, "no limit")
}

// A policy with selectors has what its pods request, and their part of what is idle on their nodes. All parts together are the whole.
func TestCostPoliciesOfSomePodsShareTheirNodes(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.node("n2", "m4", "on-demand")
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: test.Namespace, Labels: map[string]string{"team": "a"}}})
	team := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} }
	}
	w.pod("a", "n1", "1", "4Gi", team("a"))
	w.pod("b", "n1", "2", "8Gi", team("b"))
	w.create(test.CostPolicy("p"))
	total := 0.0
	for _, name := range []string{"a", "b"} {
		p := w.readCost()
		p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		p.Spec.WorkloadSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
		if err := w.client.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		s := w.cost().Status
		if s.Pods != 1 || s.Nodes != 1 {
			t.Errorf("%s: %+v", name, s)
		}
		total += s.CostPerHour
	}
	if !near(total, 2) {
		t.Errorf("both cost %v, want the price of their node, 2", total)
	}
	p := w.readCost()
	p.Spec.NamespaceSelector.MatchLabels["team"] = "other"
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if s := w.cost().Status; s.Pods != 0 || s.CostPerHour != 0 {
		t.Errorf("pods of a namespace that is not selected: %+v", s)
	}
}

// What is spent is the price by the time, in all and in the month, and a limit that is exceeded is told once.
func TestSpendingAddsUpAndLimitsAreTold(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.clock.SetTime(time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC))
	w.create(test.CostPolicy("p", func(p *kcloudv1alpha1.CostPolicy) {
		p.Spec.BudgetLimit, p.Spec.MonthlyBudget, p.Spec.CostPerHourLimit = ptr.To(10.0), ptr.To(20.0), ptr.To(1.5)
		p.Spec.AlertThresholds = []kcloudv1alpha1.CostAlertThreshold{{Type: kcloudv1alpha1.AlertBudgetUsage, Value: 50, Severity: kcloudv1alpha1.SeverityInfo, Action: "pause"}}
	}))
	s := w.cost().Status
	if s.CurrentSpend != 0 || s.Phase != kcloudv1alpha1.PolicyViolated || len(s.Violations) != 1 || s.Violations[0].Type != "costPerHourLimit" {
		t.Errorf("%+v", s)
	}
	began := s.Violations[0].Since
	w.pass(3*time.Hour, func() { w.cost() })
	s = w.readCost().Status
	if !near(s.CurrentSpend, 6) || !near(s.MonthlySpend, 4) || !near(s.BudgetUtilization, 60) || s.Accrual.Estimated != 0 {
		t.Errorf("after 3 hours at 2 USD, one of them in November: %+v", s)
	}
	if len(s.Violations) != 2 || !s.Violations[0].Since.Equal(&began) || s.Violations[1].Type != "budget_usage" || s.Violations[1].Action != "pause" {
		t.Errorf("violations %+v", s.Violations)
	}
	expectCondition(t, s.Conditions, kcloudv1alpha1.ConditionWithinLimits, metav1.ConditionFalse, optimizer.ReasonLimitExceeded, "costPerHourLimit is 1.5, and the value is 2")
	if len(w.events) != 2 || w.events[0].Reason != "PolicyViolated" || !strings.Contains(w.events[1].Message, "pause is not carried out") {
		t.Errorf("events %+v", w.events)
	}
	w.pass(3*time.Hour, func() { w.cost() })
	s = w.readCost().Status
	expectCondition(t, s.Conditions, kcloudv1alpha1.ConditionWithinLimits, metav1.ConditionFalse, optimizer.ReasonLimitExceeded, "budgetLimit is 10, and the value is 12")
}

// steppedClock tells a time of day that is set forth and back, and measures by one that is not.
type steppedClock struct {
	*clocktesting.FakePassiveClock
	ahead time.Duration
	told  map[time.Time]time.Time // the time of day, and what was measured then
}

func (c *steppedClock) Now() time.Time {
	now := c.FakePassiveClock.Now()
	day := now.Add(c.ahead)
	c.told[day] = now
	return day
}

func (c *steppedClock) Since(day time.Time) time.Duration {
	return c.FakePassiveClock.Now().Sub(c.told[day])
}

// Processes die before and after their writes, and are away for minutes; the clock is set forth and back by an hour;
// nodes come and go. The sum stays what the nodes cost.
func TestSpendingSurvivesDeathsAndClockSteps(t *testing.T) {
	const anHour = time.Hour + 7 // which comes to no time of day that was there before
	deaths := sampling.Count(50, 200)
	random := sampling.Rand(t)
	w := newWorld(t, machine("m4", 4, 16, 0, 2), machine("m8", 8, 32, 0, 4))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.create(test.CostPolicy("p"))
	var fate int
	died := errors.New("the process died")
	mortal := interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if fate == 1 {
				return died
			}
			if err := c.SubResource(sub).Patch(ctx, o, patch, options...); err != nil || fate != 2 {
				return err
			}
			return died
		},
	})
	clock := &steppedClock{FakePassiveClock: w.clock, told: map[time.Time]time.Time{}}
	newProcess := func() *optimizer.CostPolicies {
		return &optimizer.CostPolicies{Client: mortal, Readings: &optimizer.Readings{Client: mortal, CloudProvider: w.provider, Clock: clock}, Recorder: w, Clock: clock}
	}
	process := newProcess()
	look := func() error {
		_, err := process.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}})
		return err
	}
	truth, price, other := 0.0, 2.0, (*corev1.Node)(nil)
	pass := func(d time.Duration) {
		w.clock.SetTime(w.clock.Now().Add(d))
		truth += price * d.Hours()
	}
	change := func() {
		if other == nil {
			other, price = w.node("n2", "m8", "on-demand"), 6
			return
		}
		if err := w.client.Delete(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		other, price = nil, 2
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	for range deaths {
		looks := 5 + random.IntN(20)
		event, at := random.IntN(6), 1+random.IntN(looks-1) // a process that was not there cannot know that the clock was set
		for i := range looks {
			rest := 15 * time.Second
			switch {
			case i == at && event == 0:
				until := time.Duration(random.IntN(int(rest)))
				pass(until)
				change()
				rest -= until
			case i == at && event == 1:
				clock.ahead = anHour - clock.ahead
			}
			pass(rest)
			if err := look(); err != nil {
				t.Fatal(err)
			}
		}
		pass(15 * time.Second)
		fate = 1 + random.IntN(2)
		if err := look(); !errors.Is(err, died) {
			t.Fatalf("%v, want a death", err)
		}
		fate, process = 0, newProcess()
		pass(time.Duration(random.IntN(int(5 * time.Minute)))) // no process runs, and nothing changes
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	s := w.readCost().Status
	off := s.CurrentSpend/truth - 1
	t.Logf("%.4f USD told, %.4f spent, off by %.4f %%; %.4f estimated", s.CurrentSpend, truth, off*100, s.Accrual.Estimated)
	if math.Abs(off) > 3e-3 {
		t.Errorf("%.4f USD told, %.4f spent: off by more than 0.3 %%", s.CurrentSpend, truth)
	}
}

// What is far from the day before is told, once enough of it is known.
func TestCostsThatRiseAreTold(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.create(test.CostPolicy("p", func(p *kcloudv1alpha1.CostPolicy) {
		p.Spec.AlertThresholds = []kcloudv1alpha1.CostAlertThreshold{
			{Type: kcloudv1alpha1.AlertCostIncrease, Value: 50, Severity: kcloudv1alpha1.SeverityWarning},
			{Type: kcloudv1alpha1.AlertAnomaly, Value: 3, Severity: kcloudv1alpha1.SeverityWarning},
		}
	}))
	w.clock.SetTime(time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC))
	process := &optimizer.CostPolicies{Client: w.client, Readings: &optimizer.Readings{Client: w.client, CloudProvider: w.provider, Clock: w.clock}, Recorder: w, Clock: w.clock}
	look := func(d time.Duration) kcloudv1alpha1.CostPolicyStatus {
		for end := w.clock.Now().Add(d); w.clock.Now().Before(end); {
			w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
			if _, err := process.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
				t.Fatal(err)
			}
		}
		return w.readCost().Status
	}
	look(3 * time.Hour)
	w.node("n2", "m4", "on-demand")
	if s := look(2 * time.Minute); len(s.Violations) != 0 {
		t.Errorf("after three hours too little is known: %+v", s.Violations)
	}
	if err := w.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}); err != nil {
		t.Fatal(err)
	}
	if s := look(30 * time.Hour); len(s.Violations) != 0 || len(s.Accrual.Hours) != 25 {
		t.Errorf("steady: %+v, %d hours", s.Violations, len(s.Accrual.Hours))
	}
	w.node("n3", "m4", "on-demand")
	s := look(2 * time.Minute)
	if len(s.Violations) != 2 || !near(s.Violations[0].Value, 100) {
		t.Errorf("twice the cost of the day before: %+v", s.Violations)
	}
}

// The price of a machine that has none is that of its parts, where the policy has it, and status says which figures are whose.
func TestMachinesWithoutAPriceArePricedByTheirParts(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), "nvidia.com/gpu": resource.MustParse("1")}
	n.Status.Allocatable = n.Status.Capacity
	w.create(n)
	w.create(test.CostPolicy("p"))
	expectCondition(t, w.cost().Status.Conditions, kcloudv1alpha1.ConditionDataQuality, metav1.ConditionFalse, optimizer.ReasonPriceUnknown, "bare")
	p := w.readCost()
	p.Spec.ResourceCostPolicy = &kcloudv1alpha1.ResourceCostPolicy{CPUCostPerCorePerHour: 0.1, MemoryCostPerGiPerHour: 0.01, GPUCostPerHour: 3}
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	s := w.cost().Status
	if !near(s.CostPerHour, 0.8+0.32+3) {
		t.Errorf("%v USD per hour", s.CostPerHour)
	}
	expectCondition(t, s.Conditions, kcloudv1alpha1.ConditionDataQuality, metav1.ConditionFalse, optimizer.ReasonDefault, "resourceCostPolicy")
}

func TestAPowerPolicyTellsWattsAndEnergy(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand") // 40 W idle, 120 W loaded
	w.pod("a", "n1", "2", "8Gi")
	w.create(test.PowerPolicy("p", func(p *kcloudv1alpha1.PowerPolicy) {
		p.Spec.MaxPowerUsage, p.Spec.PowerEfficiencyTarget = ptr.To(70.0), ptr.To(90.0)
		p.Spec.PowerAlertThresholds = []kcloudv1alpha1.PowerAlertThreshold{{Type: kcloudv1alpha1.AlertPowerUsage, Value: 100, Severity: kcloudv1alpha1.SeverityCritical}}
	}))
	w.power()
	w.pass(2*time.Hour, func() { w.power() })
	p := w.power()
	s := p.Status
	if !near(s.CurrentPower, 80) || !near(s.IdlePower, 20) || !near(s.PowerEfficiency, 75) || !near(s.CurrentEnergy, 0.16) || !near(s.MonthlyEnergy, 0.16) || s.Phase != kcloudv1alpha1.PolicyViolated {
		t.Errorf("%+v", s)
	}
	var kinds []string
	for _, v := range s.Violations {
		kinds = append(kinds, v.Type)
	}
	if strings.Join(kinds, " ") != "maxPowerUsage powerEfficiencyTarget power_usage" {
		t.Errorf("violations %+v", s.Violations)
	}
	p.Annotations = map[string]string{kcloudv1alpha1.AnnotationDisabled: "true"}
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	if s := w.power().Status; s.Phase != kcloudv1alpha1.PolicySuspended || len(s.Violations) != 0 || s.CurrentEnergy <= 0.16 {
		t.Errorf("suspended: %+v", s)
	}
}

// A selector that cannot be read is named, and nothing is counted by it.
func TestASelectorThatCannotBeReadIsNamed(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	w.create(test.CostPolicy("p", func(p *kcloudv1alpha1.CostPolicy) {
		p.Spec.WorkloadSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Likes"}}}
	}))
	expectCondition(t, w.cost().Status.Conditions, kcloudv1alpha1.ConditionReady, metav1.ConditionFalse, optimizer.ReasonInvalid, "spec.workloadSelector")
}

// look has the process read the policy.
func look(t *testing.T, process *optimizer.CostPolicies) {
	t.Helper()
	if _, err := process.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
		t.Fatal(err)
	}
}

// A clock that is far off for one reading, and a process that starts afterwards, cost neither the month nor the sum.
func TestAClockThatIsFarOffForAMoment(t *testing.T) {
	for name, wrong := range map[string]time.Time{"long ago": time.Unix(0, 0), "far ahead": time.Date(2106, 1, 1, 0, 0, 0, 0, time.UTC)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("m4", 4, 16, 0, 2))
			pool(w)
			w.node("n1", "m4", "on-demand")
			w.create(test.CostPolicy("p"))
			clock := &steppedClock{FakePassiveClock: w.clock, told: map[time.Time]time.Time{}}
			start := func() *optimizer.CostPolicies {
				return &optimizer.CostPolicies{Client: w.client, Readings: &optimizer.Readings{Client: w.client, CloudProvider: w.provider, Clock: clock}, Recorder: w, Clock: clock}
			}
			process := start()
			hour := func() {
				for range 30 {
					w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
					look(t, process)
				}
			}
			look(t, process)
			hour()
			clock.ahead = wrong.Sub(w.clock.Now())
			w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
			look(t, process)
			clock.ahead = 0
			hour()
			process = start()
			hour()
			want := 2 * (3 + 2.0/60)
			if s := w.readCost().Status; !near(s.CurrentSpend, want) || !near(s.MonthlySpend, want) {
				t.Errorf("%v USD in all, %v in the month, want %v", s.CurrentSpend, s.MonthlySpend, want)
			}
		})
	}
}

// A process that has not run for years of its clock's time adds a week at most.
func TestALongAbsenceIsAWeekAtMost(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.create(test.CostPolicy("p"))
	w.clock.SetTime(time.Unix(0, 0))
	w.cost()
	w.clock.SetTime(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))
	if s := w.cost().Status; !near(s.CurrentSpend, 2*7*24) || !near(s.Accrual.Estimated, 2*7*24) {
		t.Errorf("%+v", s)
	}
}

// What accrues while a selector cannot be read is estimated once it can.
func TestTimeUnderAnUnreadableSelectorIsEstimated(t *testing.T) {
	w := newWorld(t, machine("m4", 4, 16, 0, 2))
	pool(w)
	w.node("n1", "m4", "on-demand")
	w.pod("a", "n1", "1", "4Gi")
	w.create(test.CostPolicy("p"))
	process := &optimizer.CostPolicies{Client: w.client, Readings: &optimizer.Readings{Client: w.client, CloudProvider: w.provider, Clock: w.clock}, Recorder: w, Clock: w.clock}
	look(t, process)
	set := func(s *metav1.LabelSelector) {
		p := w.readCost()
		p.Spec.WorkloadSelector = s
		if err := w.client.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	set(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Likes"}}})
	w.pass(time.Hour, func() { look(t, process) })
	if s := w.readCost().Status; len(s.Conditions) != 1 || s.CurrentSpend != 0 {
		t.Errorf("%+v", s)
	}
	set(nil)
	look(t, process)
	if s := w.readCost().Status; !near(s.CurrentSpend, 2) || !near(s.Accrual.Estimated, 2) {
		t.Errorf("%+v", s)
	}
}
