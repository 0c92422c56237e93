package rtruntime_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

func TestAnnotationsRepeatWhatIs(t *testing.T) {
	base := map[string]string{
		mcv1.AnnotationPeriod: "100000", mcv1.AnnotationRuntimeLow: "20000", mcv1.AnnotationRuntimeHi: "40000",
		mcv1.AnnotationCurrent: "low", mcv1.AnnotationCore: "1", mcv1.AnnotationPending: "", mcv1.AnnotationConfigured: "true",
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
func TestReservationsWakeNoMcKube(t *testing.T) {
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
