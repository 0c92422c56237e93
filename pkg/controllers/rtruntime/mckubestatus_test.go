package rtruntime_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/state"
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
	// What outlives the pod is when it last overran; everything else speaks of what is there now.
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

func TestAnnotationsRepeatWhatIs(t *testing.T) {
	base := map[string]string{
		mcv1.AnnotationPeriod: "100000", mcv1.AnnotationRuntimeLow: "20000", mcv1.AnnotationRuntimeHi: "40000",
		mcv1.AnnotationCurrent: "low", mcv1.AnnotationCore: "1", mcv1.AnnotationPending: "false", mcv1.AnnotationConfigured: "true",
	}
	with := func(pairs ...string) map[string]string {
		out := maps.Clone(base)
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	nothing := map[string]string{}
	for key := range base {
		nothing[key] = ""
	}
	waits := maps.Clone(nothing)
	waits[mcv1.AnnotationPending] = "true"
	for name, tc := range map[string]struct {
		change func(*machine)
		want   map[string]string
	}{
		"in order":        {func(*machine) {}, base},
		"raised":          {func(m *machine) { m.applied().Level, m.applied().BudgetUs = "hi", 40_000 }, with(mcv1.AnnotationCurrent, "hi")},
		"agent silent":    {func(m *machine) { m.agent(metav1.ConditionFalse) }, with(mcv1.AnnotationConfigured, "")},
		"moved":           {func(m *machine) { m.rtNode.Spec.Servers[0].Cores = []int32{0} }, with(mcv1.AnnotationCore, "0", mcv1.AnnotationConfigured, "")},
		"no core yet":     {func(m *machine) { m.rtNode.Spec.Servers = nil }, with(mcv1.AnnotationCore, "", mcv1.AnnotationPending, "true", mcv1.AnnotationConfigured, "")},
		"none but a wish": {func(m *machine) { m.rtNode.Spec.Servers = nil; m.prefer("a", "0-1") }, with(mcv1.AnnotationCore, "0-1", mcv1.AnnotationPending, "true", mcv1.AnnotationConfigured, "")},
		"ungoverned":      {func(m *machine) { m.mckubes["a"].DeletionTimestamp = &metav1.Time{Time: start} }, waits},
		"ungoverned, no label": {func(m *machine) {
			m.mckubes["a"].DeletionTimestamp = &metav1.Time{Time: start}
			m.pods["a"].Labels = nil
		}, nothing},
		"settings at fault": {func(m *machine) { m.mckubes["a"].Spec.RTSettings = nil }, waits},
	} {
		t.Run(name, func(t *testing.T) {
			m := inOrder(t)
			tc.change(m)
			if got := rtruntime.AnnotationsOf(statetest.Build(m.objects()...), "default", "a"); !maps.Equal(got, tc.want) {
				t.Errorf("annotations %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAnnotationsOfTwoContainersHoldBoth(t *testing.T) {
	n := statetest.Node("n", "n-1")
	p := statetest.On(statetest.Pod("default", "pair", "pair", "app", "side"), "n")
	fast, slow := statetest.McKube("default", "fast", "pair", "High", 20, 40), statetest.McKube("default", "slow", "pair", "Low", 10, 10)
	fast.Spec.Container, slow.Spec.Container = "app", "side"
	core := "0,1"
	slow.Spec.RTSettings.Core = &core
	got := rtruntime.AnnotationsOf(statetest.Build(n, statetest.Slice(n, statetest.Cores(1)...), p, fast, slow), "default", "pair")
	if got[mcv1.AnnotationRuntimeLow] != "app=20000,side=10000" || got[mcv1.AnnotationCore] != "app=,side=0,1" || got[mcv1.AnnotationPending] != "true" {
		t.Errorf("annotations %v", got)
	}
}

func TestWhatAChangeOfANodeConcerns(t *testing.T) {
	two := func(t *testing.T) *machine {
		m := inOrder(t)
		m.add("b", "Low", 10, 10, 0)
		delete(m.claims, "b")
		return m
	}
	for name, tc := range map[string]struct {
		change func(*machine)
		want   string
	}{
		"nothing":              {func(*machine) {}, ""},
		"a heartbeat":          {func(m *machine) { at := metav1.NewMicroTime(start); m.rtNode.Status.HeartbeatTime = &at }, ""},
		"one was applied":      {func(m *machine) { m.applied().Overruns++ }, "a/app a/app"},
		"one moved":            {func(m *machine) { m.rtNode.Spec.Servers[0].Cores = []int32{0} }, "a/app a/app b/app"},
		"one left":             {func(m *machine) { delete(m.pods, "a"); delete(m.claims, "a"); m.rtNode.Spec.Servers = nil }, "a/app b/app"},
		"agent fell silent":    {func(m *machine) { m.agent(metav1.ConditionFalse) }, "a/app a/app b/app b/app"},
		"a core more":          {func(m *machine) { m.cores = statetest.Cores(3) }, "a/app a/app b/app b/app"},
		"who waits got a core": {func(m *machine) { m.claim("b", 0) }, "b/app b/app"},
	} {
		t.Run(name, func(t *testing.T) {
			m := two(t)
			before := m.view(t)
			m.rtNode = m.rtNode.DeepCopy()
			tc.change(m)
			got := rtruntime.Concerned(before, m.view(t))
			slices.Sort(got)
			if strings.Join(got, " ") != tc.want {
				t.Errorf("concerned %v, want %s", got, tc.want)
			}
		})
	}
}

// Who makes reservations must not wake itself by them.
func TestReservationsWakeNobody(t *testing.T) {
	m := inOrder(t)
	m.add("b", "Low", 10, 10, 0)
	delete(m.claims, "b")
	store, err := state.Build(state.Options{}, m.objects()...)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := store.Snapshot().NodeView("n")
	waiting, _ := before.Server("b/app")
	if err := store.Reserve(state.Reservation{Key: "b/app", Node: "n", Core: 0, Server: waiting.Server, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	reserved, _ := store.Snapshot().NodeView("n")
	store.Release("b/app")
	released, _ := store.Snapshot().NodeView("n")
	if got := append(rtruntime.Concerned(before, reserved), rtruntime.Concerned(reserved, released)...); len(got) > 0 {
		t.Errorf("concerned %v", got)
	}
}

func TestWhoIsAdoptedAndWhatIsMissing(t *testing.T) {
	further := func(m *machine, name string, given bool) runtime.Object {
		node := "n"
		if !given {
			node = ""
		}
		c := statetest.Claim(m.pods["a"], name, "app", node, 1, 0)
		c.UID = types.UID(name)
		if given {
			c = statetest.Claim(m.pods["a"], name, "app", node, 1, 100_000)
			c.UID = types.UID(name)
		}
		c.CreationTimestamp = metav1.NewTime(statetest.Birth.Add(time.Minute))
		return c
	}
	bare := func(m *machine) {
		m.pods["a"].Spec.ResourceClaims, m.pods["a"].Status.ResourceClaimStatuses, m.pods["a"].Spec.Containers[0].Resources.Claims = nil, nil, nil
	}
	for name, tc := range map[string]struct {
		change    func(*machine) []runtime.Object
		adoptable bool
		missing   int64
		suffix    string
	}{
		"in order":                       {func(*machine) []runtime.Object { return nil }, false, 0, "rt-1"},
		"claim of the scheduler to come": {func(m *machine) []runtime.Object { delete(m.claims, "a"); return nil }, false, 0, ""},
		"came before its McKube":         {func(m *machine) []runtime.Object { delete(m.claims, "a"); bare(m); return nil }, true, 0, ""},
		"claim without a core after a crash": {func(m *machine) []runtime.Object {
			bare(m)
			m.claims["a"] = statetest.Claim(m.pods["a"], "a-app-rt", "app", "", 0, 0)
			return nil
		}, true, 0, "rt-1"},
		"not bound": {func(m *machine) []runtime.Object {
			delete(m.claims, "a")
			bare(m)
			m.pods["a"].Spec.NodeName = ""
			return nil
		}, false, 0, ""},
		"grew":   {func(m *machine) []runtime.Object { m.mckubes["a"].Spec.RTSettings.RuntimeHi = 50_000; return nil }, false, 100_000, "rt-1"},
		"shrank": {func(m *machine) []runtime.Object { m.mckubes["a"].Spec.RTSettings.RuntimeHi = 30_000; return nil }, false, -100_000, "rt-1"},
		"grew and was paid": {func(m *machine) []runtime.Object {
			m.mckubes["a"].Spec.RTSettings.RuntimeHi = 50_000
			return []runtime.Object{further(m, "a-app-rt-1", true)}
		}, false, 0, "rt-2"},
		"grew, crashed before the core was given": {func(m *machine) []runtime.Object {
			m.mckubes["a"].Spec.RTSettings.RuntimeHi = 50_000
			return []runtime.Object{further(m, "a-app-rt-1", false)}
		}, false, 100_000, "rt-1"},
		"the first further one is gone": {func(m *machine) []runtime.Object {
			m.mckubes["a"].Spec.RTSettings.RuntimeHi = 60_000
			return []runtime.Object{further(m, "a-app-rt-2", true)}
		}, false, 100_000, "rt-1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := inOrder(t)
			more := tc.change(m)
			adoptable, missing, suffix := rtruntime.PartOf(statetest.Build(append(m.objects(), more...)...), m.mckubes["a"], granularity)
			if adoptable != tc.adoptable || int64(missing) != tc.missing || suffix != tc.suffix {
				t.Errorf("adoptable %t, missing %d, suffix %q; want %t, %d, %q", adoptable, missing, suffix, tc.adoptable, tc.missing, tc.suffix)
			}
		})
	}
}
