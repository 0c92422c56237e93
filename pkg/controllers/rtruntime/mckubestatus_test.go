package rtruntime_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// inOrder is a machine on whose core 1 container a runs as its McKube says: 20 ms of 100 ms, raised to 40.
func inOrder(t testing.TB) *machine {
	t.Helper()
	m := newMachine(2)
	m.add("a", "High", 20, 40, 1)
	m.settle(t, rtruntime.Pressure{}, start)
	m.apply()
	m.agent(metav1.ConditionTrue)
	return m
}

// apply has the agent obey.
func (m *machine) apply() {
	m.rtNode.Status.Servers = nil
	for _, s := range m.rtNode.Spec.Servers {
		m.rtNode.Status.Servers = append(m.rtNode.Status.Servers, v1alpha1.RTServerStatus{
			PodUID: s.PodUID, Container: s.Container, BudgetUs: s.BudgetLowUs, PeriodUs: s.PeriodUs, Cores: s.Cores, Level: v1alpha1.LevelLow,
		})
	}
	m.rtNode.Status.ObservedGeneration = m.rtNode.Generation
	m.rtNode.Status.Backend = "simulated"
}

func (m *machine) agent(alive metav1.ConditionStatus) {
	meta.SetStatusCondition(&m.rtNode.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAgentAlive, Status: alive, Reason: "x"})
}

func (m *machine) applied() *v1alpha1.RTServerStatus { return &m.rtNode.Status.Servers[0] }

// reasons are "Condition=Status/Reason" of the conditions, in the order of the documentation; those of usual
// calm are left out.
func reasons(s mcv1.McKubeStatus) string {
	usual := []string{"Escalated=False/AtLow", "Degraded=False/NotSqueezed", "Preempted=False/NotPreempted", "BudgetTooLow=False/BudgetSuffices"}
	var out []string
	for _, c := range s.Conditions {
		if word := c.Type + "=" + string(c.Status) + "/" + c.Reason; !slices.Contains(usual, word) {
			out = append(out, word)
		}
	}
	return strings.Join(out, " ")
}

const allReady = "Admitted=True/Ready Placed=True/Ready Configured=True/Ready Ready=True/Ready"

func TestConditionsSayWhatIsTheCase(t *testing.T) {
	all := func(reason string) string {
		return strings.ReplaceAll("Admitted=False/R Placed=False/R Configured=False/R Ready=False/R", "/R", "/"+reason)
	}
	for name, tc := range map[string]struct {
		change func(*machine)
		kept   bool
		want   string
	}{
		"in order":                             {func(*machine) {}, false, allReady},
		"no settings":                          {func(m *machine) { m.mckubes["a"].Spec.RTSettings = nil }, false, all("NoSettings")},
		"no pod":                               {func(m *machine) { delete(m.claims, "a"); m.pods["a"].Name = "b" }, false, all("NoPod")},
		"pod is ending":                        {func(m *machine) { m.pods["a"].DeletionTimestamp = &metav1.Time{Time: start} }, false, all("NoPod")},
		"container that the pod does not have": {func(m *machine) { m.mckubes["a"].Spec.Container = "none" }, false, all("NoContainer")},
		"contradictory settings":               {func(m *machine) { m.mckubes["a"].Spec.RTSettings.RuntimeLow = 50_000 }, false, all("InvalidSettings")},
		"core that is gone": {func(m *machine) { m.cores = m.cores[:1] }, false,
			"Admitted=False/NoCore Placed=True/Ready Configured=True/Ready Ready=False/NoCore"},
		"core that was preferred in vain": {func(m *machine) { m.prefer("a", "7") }, false, allReady},
		"not told yet": {func(m *machine) { m.rtNode.Spec.Servers = nil }, false,
			"Admitted=True/Ready Placed=False/NotPlaced Configured=False/NotPlaced Ready=False/NotPlaced"},
		"not applied yet": {func(m *machine) { m.rtNode.Status.Servers = nil }, false,
			"Admitted=True/Ready Placed=True/Ready Configured=False/NotConfigured Ready=False/NotConfigured"},
		"applied elsewhere": {func(m *machine) { m.applied().Cores = []int32{0} }, false,
			"Admitted=True/Ready Placed=True/Ready Configured=False/NotConfigured Ready=False/NotConfigured"},
		"refused by the agent": {func(m *machine) { m.applied().Error = "EBUSY" }, false,
			"Admitted=True/Ready Placed=True/Ready Configured=False/RefusedByAgent Ready=False/RefusedByAgent"},
		"agent silent": {func(m *machine) { m.agent(metav1.ConditionFalse) }, false,
			"Admitted=True/Ready Placed=True/Ready Configured=Unknown/AgentSilent Ready=False/AgentSilent"},
		"agent silent and nothing applied": {func(m *machine) { m.agent(metav1.ConditionFalse); m.rtNode.Status.Servers = nil }, false,
			"Admitted=True/Ready Placed=True/Ready Configured=Unknown/AgentSilent Ready=False/AgentSilent"},
		"RTNode of an earlier node": {func(m *machine) { m.rtNode.OwnerReferences[0].UID = "n-0" }, false,
			"Admitted=True/Ready Placed=False/StaleRTNode Configured=False/StaleRTNode Ready=False/StaleRTNode"},
		"budgets that shrank and are not told yet": {func(m *machine) { m.mckubes["a"].Spec.RTSettings.RuntimeHi = 30_000 }, false,
			"Admitted=True/Ready Placed=True/Ready Configured=False/NotConfigured Ready=False/NotConfigured"},
		"budget that grew and was refused": {func(m *machine) { m.mckubes["a"].Spec.RTSettings.RuntimeHi = 50_000 }, true,
			"Admitted=False/BudgetKept Placed=True/Ready Configured=False/BudgetKept Ready=False/BudgetKept"},
		"raised": {func(m *machine) { m.applied().Level, m.applied().BudgetUs = "hi", 40_000 }, false,
			"Admitted=True/Ready Placed=True/Ready Configured=True/Ready Escalated=True/Raised Ready=True/Ready"},
		"squeezed": {func(m *machine) { m.applied().BudgetUs = 10_000 }, false,
			"Admitted=True/Ready Placed=True/Ready Configured=True/Ready Degraded=True/Squeezed Ready=True/Ready"},
		"less than asked for because the spec is new": {func(m *machine) { m.applied().BudgetUs = 10_000; m.rtNode.Generation = 9 }, false,
			"Admitted=True/Ready Placed=True/Ready Configured=False/NotConfigured Ready=False/NotConfigured"},
		"more than the node can enforce": {func(m *machine) { m.rtNode.Status.BudgetGranularityUs = 25_000 }, false,
			"Admitted=True/Ready Placed=True/Ready Configured=True/Ready BudgetTooLow=True/BelowGranularity Ready=True/Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			m := inOrder(t)
			tc.change(m)
			var kept map[string]string
			if tc.kept {
				kept = map[string]string{"a/app": "no room"}
			}
			got := rtruntime.StatusOf(statetest.Build(m.objects()...), m.mckubes["a"], start, kept)
			if reasons(got) != tc.want {
				t.Errorf("conditions\n %s\nwant\n %s", reasons(got), tc.want)
			}
			for _, c := range got.Conditions {
				if c.Message == "" || c.LastTransitionTime.IsZero() {
					t.Errorf("%s has no message or time", c.Type)
				}
			}
		})
	}
}

// A McKube of criticality Low says where its core has no room for runtime_hi, and nothing of the kind where it has.
func TestALowMcKubeSaysThatItsCoreHasNoRoom(t *testing.T) {
	for high, want := range map[int64]string{
		40: "no container runs above runtime_low",
		85: "no container runs above runtime_low; pod low is not raised to runtime_hi, 85000 us: its criticality is Low, and core 0 of node n has no room for that beside what all others may be raised to",
	} {
		m := newMachine(1)
		m.add("high", "High", 20, 40, 0)
		m.add("low", "Low", 10, high, 0)
		m.settle(t, rtruntime.Pressure{}, start)
		m.apply()
		m.agent(metav1.ConditionTrue)
		got := rtruntime.StatusOf(statetest.Build(m.objects()...), m.mckubes["low"], start, nil)
		if c := meta.FindStatusCondition(got.Conditions, mcv1.ConditionEscalated); c == nil || c.Message != want {
			t.Errorf("runtime_hi of %d ms: %+v, want %q", high, c, want)
		}
	}
}

func TestStatusAddsUpWhatRuns(t *testing.T) {
	m := inOrder(t)
	m.applied().Overruns, m.applied().Misses, m.applied().Level = 3, 2, "hi"
	at := metav1.NewMicroTime(start.Add(1500 * time.Millisecond))
	m.applied().LastOverrunTime, m.applied().BudgetUs = &at, 40_000
	s := rtruntime.StatusOf(statetest.Build(m.objects()...), m.mckubes["a"], start, nil)
	if s.Node != "n" || s.AllocatedCore != "1" || s.Backend != "simulated" || s.CurrentRuntime != "hi" || s.Pods != 1 || s.ReadyPods != 1 ||
		s.Overruns != 3 || s.DeadlineMisses != 2 || !s.LastOverrunTime.Time.Equal(start.Add(time.Second)) {
		t.Errorf("status %+v", s)
	}
	// The time of the last overrun stays when the pod is gone; everything else speaks of what is there now.
	m.mckubes["a"].Status = s
	delete(m.claims, "a")
	m.pods["a"].Name = "b"
	s = rtruntime.StatusOf(statetest.Build(m.objects()...), m.mckubes["a"], start, nil)
	if s.Node != "" || s.AllocatedCore != "" || s.CurrentRuntime != "low" || s.Pods != 0 || s.Overruns != 0 || s.LastOverrunTime == nil {
		t.Errorf("status without a pod %+v", s)
	}
}

// A status of yesterday is no reason to believe anything today, and times tell of transitions only.
func TestAStaleStatusIsPutRight(t *testing.T) {
	m := inOrder(t)
	m.mckubes["a"].Status = rtruntime.StatusOf(statetest.Build(m.objects()...), m.mckubes["a"], start, nil)
	m.mckubes["a"].Generation = 2
	later := start.Add(time.Hour)
	same := rtruntime.StatusOf(statetest.Build(m.objects()...), m.mckubes["a"], later, nil)
	for _, c := range same.Conditions {
		if !c.LastTransitionTime.Time.Equal(start) || c.ObservedGeneration != 2 {
			t.Errorf("%s of generation %d since %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
		}
	}
	m.agent(metav1.ConditionFalse)
	silent := rtruntime.StatusOf(statetest.Build(m.objects()...), m.mckubes["a"], later, nil)
	if c := meta.FindStatusCondition(silent.Conditions, mcv1.ConditionReady); c.Status != metav1.ConditionFalse || !c.LastTransitionTime.Time.Equal(later) {
		t.Errorf("Ready %s since %s", c.Status, c.LastTransitionTime)
	}
}

// rival is a McKube for the pod of a, so many seconds younger.
func (m *machine) rival(name string, seconds int) *mcv1.McKube {
	k := statetest.McKube("default", name, "a", "High", 10, 10)
	k.CreationTimestamp = metav1.NewTime(statetest.Birth.Add(time.Duration(seconds) * time.Second))
	return k
}

func TestTheYoungerOfTwoMcKubesSaysConflict(t *testing.T) {
	m := inOrder(t)
	younger := m.rival("younger", 1)
	s := statetest.Build(append(m.objects(), younger)...)
	if got := reasons(rtruntime.StatusOf(s, m.mckubes["a"], start, nil)); got != allReady {
		t.Errorf("the older: %s", got)
	}
	status := rtruntime.StatusOf(s, younger, start, nil)
	if c := meta.FindStatusCondition(status.Conditions, mcv1.ConditionReady); c.Reason != "Conflict" || !strings.Contains(c.Message, "McKube a,") {
		t.Errorf("the younger: %s (%s)", reasons(status), c.Message)
	}
	// One that governs another pod as well is at fault all the same.
	wide := m.rival("wide", 2)
	wide.Spec.Podname, wide.Spec.Selector = "", &metav1.LabelSelector{MatchLabels: map[string]string{mcv1.LabelRT: "x"}}
	other := statetest.Pod("default", "other", "other", "app")
	s = statetest.Build(append(m.objects(), wide, other)...)
	status = rtruntime.StatusOf(s, wide, start, nil)
	if c := meta.FindStatusCondition(status.Conditions, mcv1.ConditionReady); c.Reason != "Conflict" || status.Pods != 1 {
		t.Errorf("the wide one: %s, %d pods", reasons(status), status.Pods)
	}
}

func TestEventsAreOfTransitions(t *testing.T) {
	m := inOrder(t)
	younger := m.rival("younger", 1)
	s := statetest.Build(append(m.objects(), younger)...)
	first := rtruntime.StatusOf(s, younger, start, nil)
	if got := rtruntime.EventsOf(s, younger, first); !slices.Equal(got, []string{"Conflict"}) {
		t.Errorf("told %v", got)
	}
	younger.Status = first
	if got := rtruntime.EventsOf(s, younger, rtruntime.StatusOf(s, younger, start, nil)); len(got) > 0 {
		t.Errorf("told again %v", got)
	}
	a := m.mckubes["a"]
	a.Status = rtruntime.StatusOf(s, a, start, nil)
	keeps := rtruntime.StatusOf(s, a, start, map[string]string{"a/app": "9 ppm"})
	if got := rtruntime.EventsOf(s, a, keeps); !slices.Equal(got, []string{"BudgetKept"}) {
		t.Errorf("told %v", got)
	}
	a.Status = keeps
	if got := rtruntime.EventsOf(s, a, rtruntime.StatusOf(s, a, start, map[string]string{"a/app": "8 ppm"})); len(got) > 0 {
		t.Errorf("told with other numbers %v", got)
	}
}

// The pod itself says that it waits in vain, and for what setting.
func TestAPodIsToldThatAllNodesAreTooCoarse(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*machine)
		told   bool
	}{
		"budgets end at ticks":             {func(m *machine) { m.rtNode.Status.BudgetGranularityUs = 4000 }, true},
		"budgets end in time":              {func(*machine) {}, false},
		"there is no room, which may pass": {func(m *machine) { m.mckubes["a"].Spec.RTSettings.RuntimeHi = 94_000 }, false},
		"it runs":                          {func(m *machine) { m.pods["a"].Spec.NodeName = "n"; m.rtNode.Status.BudgetGranularityUs = 4000 }, false},
	} {
		m := inOrder(t)
		m.pods["a"].Spec.NodeName, m.rtNode.Spec.Servers, m.rtNode.Status.Servers = "", nil, nil
		m.claims["a"] = statetest.Claim(m.pods["a"], "a-app-rt", "app", "", 0, 0)
		tc.change(m)
		s, a := statetest.Build(m.objects()...), m.mckubes["a"]
		message := rtruntime.ToldOf(s, a, rtruntime.StatusOf(s, a, start, nil), m.pods["a"].UID)["NotAdmitted"]
		says := strings.Contains(message, "4000 us late") && strings.Contains(message, "--rt-budget-granularity")
		if tc.told != (message != "") || tc.told != says {
			t.Errorf("%s: told %q", name, message)
		}
	}
}

// The message of a condition may have 32,768 characters, and a McKube thousands of pods that are raised at once.
func TestManyNamesFitIntoACondition(t *testing.T) {
	t.Parallel()
	names := make([]string, 5000)
	for i := range names {
		names[i] = strings.Repeat("x", 253)
	}
	if got := rtruntime.Listed(names); len(got) > 32_768 || !strings.HasSuffix(got, "x and 4980 more") {
		t.Errorf("%d characters, ending in %s", len(got), got[len(got)-20:])
	}
	if got := rtruntime.Listed([]string{"a", "b"}); got != "a, b" {
		t.Errorf("two are listed as %s", got)
	}
}

// A pod that no node takes is on none, so that no loop over nodes counts its refusal.
func TestRefusalsOfPodsWithoutANodeAreCounted(t *testing.T) {
	m := inOrder(t)
	m.pods["a"].Spec.NodeName, m.rtNode.Spec.Servers, m.rtNode.Status.Servers = "", nil, nil
	m.claims["a"] = statetest.Claim(m.pods["a"], "a-app-rt", "app", "", 0, 0)
	a := m.mckubes["a"]
	note, forget := rtruntime.Refusals()
	waiting := func() float64 {
		return read(t, metrics.ContainersRefused.WithLabelValues(rt.TestT1)).GetGauge().GetValue()
	}
	counted := func() float64 {
		return read(t, metrics.Admissions.WithLabelValues(metrics.VerdictRefused, rt.TestT1)).GetCounter().GetValue()
	}
	waitingBefore, countedBefore := waiting(), counted()
	expect := func(when string, wantWaiting, wantCounted float64) {
		t.Helper()
		if gotWaiting, gotCounted := waiting()-waitingBefore, counted()-countedBefore; gotWaiting != wantWaiting || gotCounted != wantCounted {
			t.Errorf("%s: %v wait and %v were counted, want %v and %v", when, gotWaiting, gotCounted, wantWaiting, wantCounted)
		}
	}
	note(statetest.Build(m.objects()...), a)
	expect("while there is room", 0, 0)
	a.Spec.RTSettings.RuntimeHi = 94_000
	for range 2 {
		note(statetest.Build(m.objects()...), a)
		expect("while it is refused", 1, 1)
	}
	forget(a)
	expect("once its McKube is gone", 0, 1)
}
