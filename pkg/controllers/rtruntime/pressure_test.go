package rtruntime_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func (m *machine) busy(yes bool) {
	m.node = m.node.DeepCopy()
	m.node.Annotations = map[string]string{mcv1.AnnotationCPUBusy: map[bool]string{true: "true", false: "false"}[yes]}
}

func (m *machine) alive(status metav1.ConditionStatus) {
	m.rtNode = m.rtNode.DeepCopy()
	m.rtNode.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAgentAlive, Status: status}}
}

func recoveryDelay(d time.Duration) *mcv1.Escalation {
	return &mcv1.Escalation{RecoveryDelay: &metav1.Duration{Duration: d}}
}

// Budgets of a busy node are raised, those of Low containers for which there is no room not, and given back once it has been calm for
// as long as each McKube says: 5 s, if it does not say.
func TestPressureRaisesAndCalmGivesBack(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(start)
	m := newMachine(2)
	m.add("high", "High", 20, 40, 0)
	m.add("low", "Low", 10, 25, 0)
	m.add("middle", "Middle", 20, 30, 0).Spec.Escalation = recoveryDelay(2 * time.Second)
	var p rtruntime.Pressure
	step := func(after time.Duration, busy bool, want string, wake time.Duration) {
		t.Helper()
		clock.Step(after)
		m.busy(busy)
		d := m.settle(t, p, clock.Now())
		expectSpec(t, d, want)
		if d.Wake != wake {
			t.Errorf("wakes after %s, want %s", d.Wake, wake)
		}
		p = d.Pressure
	}
	low, all := "high@0 low 20/40, low@0 low 10/25, middle@0 low 20/30", "high@0 hi 20/40, low@0 low 10/25, middle@0 hi 20/30"
	step(0, false, low, 0)
	step(time.Hour, true, all, 0)
	step(time.Hour, true, all, 0)
	step(time.Second, false, all, 2*time.Second)
	step(time.Second, false, all, time.Second)
	step(0, true, all, 0) // the calm is over and begins anew
	step(time.Minute, false, all, 2*time.Second)
	step(2*time.Second, false, "high@0 hi 20/40, low@0 low 10/25, middle@0 low 20/30", 3*time.Second)
	step(-time.Hour, false, "high@0 hi 20/40, low@0 low 10/25, middle@0 low 20/30", 5*time.Second) // a clock that jumps back lets it wait again
	step(5*time.Second, false, low, 0)
	step(time.Hour, false, low, 0)
}

// Low is raised where its core has room beside all others' high budgets, and the first to be given back.
func TestPressureRaisesLowWhereThereIsRoom(t *testing.T) {
	t.Parallel()
	m := newMachine(1)
	m.add("high", "High", 20, 40, 0)
	m.add("low", "Low", 10, 20, 0)
	m.add("large", "Low", 10, 40, 0)
	m.busy(true)
	d := m.settle(t, rtruntime.Pressure{}, start)
	expectSpec(t, d, "high@0 hi 20/40, large@0 low 10/40, low@0 hi 10/20")
	m.busy(false)
	d = m.settle(t, d.Pressure, start.Add(time.Second))
	d = m.settle(t, d.Pressure, start.Add(6*time.Second))
	expectSpec(t, d, "high@0 hi 20/40, large@0 low 10/40, low@0 low 10/20")
	m.busy(true)
	m.add("middle", "Middle", 20, 25, 0)
	d = m.settle(t, d.Pressure, start.Add(7*time.Second))
	expectSpec(t, d, "high@0 hi 20/40, large@0 low 10/40, low@0 low 10/20, middle@0 hi 20/25")
}

// Budgets whose time is over together go back one a second, the least critical first; when the node is busy again meanwhile, the rest stay raised.
func TestBudgetsAreGivenBackOneByOne(t *testing.T) {
	t.Parallel()
	m := newMachine(2)
	for _, name := range []string{"a-high", "b-high"} {
		m.add(name, "High", 20, 30, 0)
	}
	m.add("middle", "Middle", 20, 30, 1)
	var p rtruntime.Pressure
	now := start
	for i, c := range []struct {
		after  time.Duration
		busy   bool
		levels [3]string
		wake   time.Duration
	}{
		{0, true, [3]string{"hi", "hi", "hi"}, 0},
		{time.Second, false, [3]string{"hi", "hi", "hi"}, 5 * time.Second},
		{5 * time.Second, false, [3]string{"hi", "hi", "low"}, time.Second},
		{300 * time.Millisecond, false, [3]string{"hi", "hi", "low"}, 700 * time.Millisecond},
		{700 * time.Millisecond, false, [3]string{"hi", "low", "low"}, time.Second},
		{100 * time.Millisecond, true, [3]string{"hi", "hi", "hi"}, 0},
		{time.Second, false, [3]string{"hi", "hi", "hi"}, 5 * time.Second},
		{5 * time.Second, false, [3]string{"hi", "hi", "low"}, time.Second},
		{-2 * time.Second, false, [3]string{"hi", "hi", "low"}, 5 * time.Second}, // a clock that jumps back lets them wait again
		{5 * time.Second, false, [3]string{"hi", "low", "low"}, time.Second},
		{time.Minute, false, [3]string{"low", "low", "low"}, 0},
	} {
		now = now.Add(c.after)
		m.busy(c.busy)
		d := m.settle(t, p, now)
		p = d.Pressure
		expectSpec(t, d, fmt.Sprintf("a-high@0 %s 20/30, b-high@0 %s 20/30, middle@1 %s 20/30", c.levels[0], c.levels[1], c.levels[2]))
		if d.Wake != c.wake {
			t.Errorf("step %d: wakes after %s, want %s", i, d.Wake, c.wake)
		}
	}
}

// A restarted controller has seen no calm: it waits for it before it takes anything back.
func TestARestartTakesNoBudgetBackAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(1)
	m.add("high", "High", 20, 40, 0)
	m.busy(true)
	m.settle(t, rtruntime.Pressure{}, start)
	m.busy(false)
	d := m.settle(t, rtruntime.Pressure{}, start.Add(time.Hour))
	expectSpec(t, d, "high@0 hi 20/40")
	expectSpec(t, m.settle(t, d.Pressure, start.Add(time.Hour+5*time.Second)), "high@0 low 20/40")
}

func TestThePressureThatTheAgentReports(t *testing.T) {
	t.Parallel()
	m := newMachine(1)
	m.add("high", "High", 20, 40, 0)
	since := metav1.NewTime(start)
	m.rtNode.Status.Pressure.BusySince = &since
	expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), "high@0 hi 20/40")
	m.rtNode.Status.Pressure.BusySince = nil
	d := m.settle(t, rtruntime.Pressure{Busy: true}, start)
	expectSpec(t, m.settle(t, d.Pressure, start.Add(5*time.Second)), "high@0 low 20/40")
}

// What a silent agent said last is not believed, and it would not obey: levels stay as they are.
func TestASilentAgentsPressureChangesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(1)
	m.add("high", "High", 20, 40, 0)
	m.settle(t, rtruntime.Pressure{}, start)
	m.alive(metav1.ConditionFalse)
	m.busy(true)
	expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), "high@0 low 20/40")
	m.alive(metav1.ConditionTrue)
	d := m.settle(t, rtruntime.Pressure{}, start)
	expectSpec(t, d, "high@0 hi 20/40")
	m.alive(metav1.ConditionFalse)
	m.busy(false)
	d = m.settle(t, d.Pressure, start)
	expectSpec(t, d, "high@0 hi 20/40")
	expectSpec(t, m.settle(t, d.Pressure, start.Add(time.Hour)), "high@0 hi 20/40")
}

// On a core with an escalation reserve one container at a time is raised, the most critical first. While the agent has
// raised another by itself, the controller raises none.
func TestLimitedContainersAreRaisedOneAtATime(t *testing.T) {
	t.Parallel()
	m := newMachine(1)
	m.cores[0].Capacity, m.cores[0].EscalationReserve = 600_000, 300_000
	for _, c := range []struct {
		pod         string
		criticality mcv1.Criticality
	}{{"middle", "Middle"}, {"high", "High"}, {"other", "High"}} {
		k := m.add(c.pod, c.criticality, 18, 45, 0)
		k.Spec.Escalation = &mcv1.Escalation{Admission: mcv1.AdmissionLimited}
		m.claim(c.pod, 0)
	}
	m.busy(true)
	d := m.settle(t, rtruntime.Pressure{}, start)
	expectSpec(t, d, "high@0 hi 18/45, middle@0 low 18/45, other@0 low 18/45")
	if len(d.NoRoom) != 2 || d.Spec.Plan[0].MaxRaised != 1 || d.Spec.Plan[0].ThresholdPpm != 900_000 {
		t.Errorf("no room for %v; the plan is %+v", d.NoRoom, d.Spec.Plan)
	}
	m.rtNode.Spec = v1alpha1.RTNodeSpec{}
	m.busy(false)
	m.settle(t, rtruntime.Pressure{}, start)
	m.rtNode.Status.Servers = []v1alpha1.RTServerStatus{{PodUID: "middle", Container: "app", Level: "hi", BudgetUs: 45_000, PeriodUs: 100_000}}
	m.busy(true)
	expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), "high@0 low 18/45, middle@0 hi 18/45, other@0 low 18/45")
}

// Where a plan counts on squeezing others first, as on a core that no longer holds, pressure raises only what has
// room without.
func TestPressureSqueezesNoServer(t *testing.T) {
	t.Parallel()
	server := func(id string, low, high int64) rt.Server {
		return rt.Server{ID: id, Criticality: rt.High, Period: 100_000, Low: low * 1000, High: high * 1000}
	}
	servers := []rt.Server{server("small", 20, 30), server("large", 20, 70)}
	core := rt.Core{Capacity: 520_000, Granularity: granularity}
	plan := rt.PlanCore(core, servers)
	if plan.Holds || len(plan.Raise) == 0 {
		t.Fatalf("the plan is %+v", plan)
	}
	if got := rtruntime.Raisable(core, servers, plan, nil); len(got) != 1 || !got["small"] {
		t.Errorf("raised are %v", got)
	}
	core.Capacity = 450_000
	if got := rtruntime.Raisable(core, servers, rt.PlanCore(core, servers), nil); len(got) != 0 {
		t.Errorf("raised are %v", got)
	}
}
