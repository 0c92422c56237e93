package rtruntime_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/rtruntime"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// granularity is what every budget is charged beyond itself, us.
const granularity = 100

// machine is a node, its RTNode and the containers on it, as API objects.
type machine struct {
	node    *corev1.Node
	rtNode  *v1alpha1.RTNode
	cores   []rt.Core
	backend string
	pods    map[string]*corev1.Pod
	mckubes map[string]*mcv1.McKube
	claims  map[string]runtime.Object
}

func newMachine(cores int) *machine {
	node := statetest.Node("n", "n-1")
	return &machine{
		node: node, rtNode: statetest.RTNode(node), cores: statetest.Cores(cores), backend: "simulated",
		pods: map[string]*corev1.Pod{}, mckubes: map[string]*mcv1.McKube{}, claims: map[string]runtime.Object{},
	}
}

// add has a container of the pod run, with a claim on the core that pays for it.
func (m *machine) add(pod string, criticality mcv1.Criticality, lowMs, highMs int64, core int) *mcv1.McKube {
	p := statetest.On(statetest.WithClaim(statetest.Pod("default", pod, types.UID(pod), "app"), "app", pod+"-claim"), "n")
	k := statetest.McKube("default", pod, pod, criticality, lowMs, highMs)
	m.pods[pod], m.mckubes[pod] = p, k
	m.claim(pod, core)
	return k
}

// claim gives the container what its settings need now.
func (m *machine) claim(pod string, core int) {
	server, err := rtdra.ServerOf(m.mckubes[pod], types.UID(pod), "app")
	if err != nil {
		panic(err)
	}
	m.claims[pod] = statetest.Claim(m.pods[pod], pod+"-claim", "app", "n", core, server.Charge(granularity))
}

func (m *machine) prefer(pod, cores string) { m.mckubes[pod].Spec.RTSettings.Core = &cores }

func (m *machine) objects() []runtime.Object {
	out := []runtime.Object{m.node, statetest.SliceOf(m.node, m.backend, m.cores...)}
	if m.rtNode != nil {
		out = append(out, m.rtNode)
	}
	for name, p := range m.pods {
		out = append(out, p)
		if k := m.mckubes[name]; k != nil {
			out = append(out, k)
		}
		if c := m.claims[name]; c != nil {
			out = append(out, c)
		}
	}
	return out
}

func (m *machine) view(t testing.TB) *state.NodeView {
	t.Helper()
	n, ok := statetest.Build(m.objects()...).NodeView("n")
	if !ok {
		t.Fatal("the node is unknown")
	}
	return n
}

// settle decides and writes, as the loop does.
func (m *machine) settle(t testing.TB, p rtruntime.Pressure, now time.Time) rtruntime.Decision {
	t.Helper()
	d := rtruntime.Decide(m.view(t), p, now, granularity)
	m.rtNode = m.rtNode.DeepCopy()
	m.rtNode.Spec = d.Spec
	return d
}

// spec is "pod@core level low/high" of each server, in the spec's order.
func spec(s v1alpha1.RTNodeSpec) string {
	var out []string
	for _, e := range s.Servers {
		out = append(out, fmt.Sprintf("%s@%d %s %d/%d", e.Pod, e.Cores[0], e.Level, e.BudgetLowUs/1000, e.BudgetHighUs/1000))
	}
	return strings.Join(out, ", ")
}

func expectSpec(t testing.TB, d rtruntime.Decision, want string) {
	t.Helper()
	if got := spec(d.Spec); got != want {
		t.Errorf("the spec is\n %s\nwant\n %s\nrefused: %v", got, want, d.Refused)
	}
	again := map[int32]bool{}
	for _, p := range d.Spec.Plan {
		again[p.Core] = true
	}
	for _, e := range d.Spec.Servers {
		if !again[e.Cores[0]] {
			t.Errorf("core %d has servers and no plan", e.Cores[0])
		}
	}
}

var start = statetest.Birth

// A new container that spreads, or whose node has its containers spread, goes to the core with the most room, and not to
// that of its claim.
func TestANewContainerThatSpreads(t *testing.T) {
	for name, by := range map[string]func(*machine, *mcv1.McKube){
		"by its McKube": func(_ *machine, k *mcv1.McKube) { k.Spec.RTSettings.CoreSelection = mcv1.CoreSelectionSpread },
		"by its node": func(m *machine, _ *mcv1.McKube) {
			m.node = m.node.DeepCopy()
			m.node.Labels = map[string]string{v1alpha1.LabelCoreSelection: string(mcv1.CoreSelectionSpread)}
		},
	} {
		m := newMachine(2)
		m.add("a", "High", 20, 20, 0)
		m.settle(t, rtruntime.Pressure{}, start)
		by(m, m.add("b", "High", 20, 20, 0))
		d := m.settle(t, rtruntime.Pressure{}, start)
		t.Log(name)
		expectSpec(t, d, "a@0 low 20/20, b@1 low 20/20")
		expectSpec(t, m.settle(t, d.Pressure, start), "a@0 low 20/20, b@1 low 20/20")
	}
}

// The seed's example: Middle 40 % and Low 35 % run on core 2, High 25 % prefers it. 40 + 35 + 25 is more than a
// core, so one moves to where it fits: the least critical.
func TestTheLeastCriticalMovesForOneThatPrefersItsCore(t *testing.T) {
	t.Parallel()
	m := newMachine(4)
	m.add("middle", "Middle", 40, 40, 2)
	m.add("low", "Low", 35, 35, 2)
	expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), "low@2 low 35/35, middle@2 low 40/40")

	m.add("high", "High", 25, 25, 1)
	m.prefer("high", "2")
	n := m.view(t)
	d := m.settle(t, rtruntime.Pressure{}, start)
	low := d.Spec.Servers[1]
	if low.Pod != "low" || low.Cores[0] == 2 {
		t.Errorf("low is on core %v", low.Cores)
	}
	expectSpec(t, d, fmt.Sprintf("high@2 low 25/25, low@%d low 35/35, middle@2 low 40/40", low.Cores[0]))
	var told []string
	for _, e := range rtruntime.PlacementEvents(n, d) {
		kind := "McKube"
		if _, ok := e.Object.(*corev1.Pod); ok {
			kind = "Pod"
		}
		told = append(told, fmt.Sprintf("%s %s %s", kind, e.Object.(metav1.Object).GetName(), e.Reason))
	}
	slices.Sort(told)
	want := "McKube high MadeRoom, McKube low Moved, Pod high MadeRoom, Pod high Placed, Pod low Moved"
	if got := strings.Join(told, ", "); got != want {
		t.Errorf("told:\n got %s\nwant %s", got, want)
	}
	// Once written, nothing is left to do.
	if again := m.settle(t, rtruntime.Pressure{}, start); len(again.Changes) != 0 {
		t.Errorf("a second look changes %v", again.Changes)
	}
}

func TestWhoBelongsInTheSpec(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(m *machine)
		want   string
	}{
		{"a container with a claim", func(*machine) {}, "a@0 low 20/20, b@1 low 30/30"},
		{"not one whose McKube is being deleted", func(m *machine) {
			now := metav1.NewTime(start)
			m.mckubes["a"].DeletionTimestamp, m.mckubes["a"].Finalizers = &now, []string{mcv1.Finalizer}
		}, "b@1 low 30/30"},
		{"not one whose McKube is gone", func(m *machine) { delete(m.mckubes, "a") }, "b@1 low 30/30"},
		{"not one whose pod has finished", func(m *machine) { m.pods["a"].Status.Phase = corev1.PodSucceeded }, "b@1 low 30/30"},
		{"one whose pod is being deleted, until it is gone", func(m *machine) {
			now := metav1.NewTime(start)
			m.pods["a"].DeletionTimestamp, m.pods["a"].Finalizers = &now, []string{"x/y"}
		}, "a@0 low 20/20, b@1 low 30/30"},
		{"not one whose pod is gone", func(m *machine) { delete(m.pods, "a") }, "b@1 low 30/30"},
		{"not one without a claim: the scheduler does not count it", func(m *machine) { delete(m.claims, "a") }, "b@1 low 30/30"},
		{"not one whose claim is too small", func(m *machine) {
			m.claims["a"] = statetest.Claim(m.pods["a"], "a-claim", "app", "n", 0, 150_000)
		}, "b@1 low 30/30"},
	} {
		for _, running := range []bool{false, true} {
			if running && strings.Contains(c.name, "too small") {
				continue // it runs with what it was admitted with
			}
			t.Run(fmt.Sprintf("%s/running=%t", c.name, running), func(t *testing.T) {
				t.Parallel()
				m := newMachine(2)
				m.add("a", "High", 20, 20, 0)
				m.add("b", "Low", 30, 30, 1)
				if running {
					m.settle(t, rtruntime.Pressure{}, start)
				}
				c.change(m)
				expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), c.want)
			})
		}
	}
}

func TestSettingsThatChangeWhileTheContainerRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(m *machine)
		want   string
	}{
		{"less takes effect", func(m *machine) { m.mckubes["a"].Spec.RTSettings.RuntimeHi = 25_000 }, "a@0 low 20/25, b@0 low 40/40"},
		{"more than its claims give does not", func(m *machine) { m.mckubes["a"].Spec.RTSettings.RuntimeHi = 45_000 }, "a@0 low 20/40, b@0 low 40/40"},
		{"more that its claims give does", func(m *machine) {
			m.mckubes["a"].Spec.RTSettings.RuntimeHi = 45_000
			m.claim("a", 0)
		}, "a@0 low 20/45, b@0 low 40/40"},
		{"more than any core has does not, whatever its claims say", func(m *machine) {
			m.mckubes["a"].Spec.RTSettings.RuntimeHi = 95_000
			m.claim("a", 0)
		}, "a@0 low 20/40, b@0 low 40/40"},
		{"a criticality that lets it escalate is more", func(m *machine) {
			m.mckubes["b"].Spec.RTSettings.RuntimeHi = 45_000 // Low: costs nothing
			m.mckubes["b"].Spec.Criticality = "High"
		}, "a@0 low 20/40, b@0 low 40/40"},
		{"dwell and mode need no admission", func(m *machine) {
			m.mckubes["a"].Spec.Escalation = &mcv1.Escalation{Mode: mcv1.EscalationReserved, Dwell: &metav1.Duration{Duration: time.Second}}
		}, "a@0 low 20/40, b@0 low 40/40"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(1)
			m.add("a", "Middle", 20, 40, 0)
			m.add("b", "Low", 40, 40, 0)
			m.settle(t, rtruntime.Pressure{}, start)
			c.change(m)
			expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), c.want)
		})
	}
}

// What the scheduler gave a container for its former settings must hold for those to come, or else another whose claim
// fits finds the core taken: a raise that the core of the claim has no reserve for is not granted anywhere.
func TestSettingsThatOverreachTheReserveOfTheirCoreAreNotTaken(t *testing.T) {
	t.Parallel()
	m := newMachine(2)
	m.cores[1].Capacity, m.cores[1].EscalationReserve = 600_000, 300_000
	limited := func(pod string, low, high int64, core int) {
		m.add(pod, "Middle", low, high, core).Spec.Escalation = &mcv1.Escalation{Admission: mcv1.AdmissionLimited}
		m.claim(pod, core)
	}
	limited("a", 28, 29, 1)
	limited("b", 5, 5, 0)
	expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), "a@1 low 28/29, b@0 low 5/5")
	m.mckubes["b"].Spec.RTSettings.RuntimeHi = 6000
	expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), "a@1 low 28/29, b@0 low 5/5")
	limited("c", 27, 28, 1) // the room of core 1 that its claims leave
	expectSpec(t, m.settle(t, rtruntime.Pressure{}, start), "a@1 low 28/29, b@0 low 5/5, c@1 low 27/28")
	limited("late", 5, 5, 0) // its settings change before it is seen
	m.mckubes["late"].Spec.RTSettings.RuntimeHi = 6000
	d := m.settle(t, rtruntime.Pressure{}, start)
	expectSpec(t, d, "a@1 low 28/29, b@0 low 5/5, c@1 low 27/28")
	if got, want := d.Refused["late/app"], (rt.Verdict{Test: "T1k", Need: 10_000, Reason: "EscalationReserveTooSmall", Server: "late/app"}); got != want {
		t.Errorf("it is refused with %+v, want %+v", got, want)
	}
	m.add("d", "High", 20, 20, 0)
	if core, _ := m.view(t).Core(0); !rt.Holds(core.Core, m.view(t).Claims(core).Servers).Admitted {
		t.Errorf("the claims on core 0 do not hold: %+v", m.view(t).Claims(core).Servers)
	}
}

func TestTheAgentIsToldHowToEscalate(t *testing.T) {
	t.Parallel()
	m := newMachine(1)
	k := m.add("a", "High", 20, 40, 0)
	overruns, periods := int32(3), int32(7)
	k.Spec.RTSettings.Levels = []mcv1.Level{{Name: "more", Runtime: 35_000}, {Name: "some", Runtime: 30_000}}
	k.Spec.Escalation = &mcv1.Escalation{Mode: mcv1.EscalationReserved, Overruns: &overruns, Periods: &periods, Dwell: &metav1.Duration{Duration: 2 * time.Second}}
	d := m.settle(t, rtruntime.Pressure{}, start)
	want := v1alpha1.RTServer{
		PodUID: "a", Namespace: "default", Pod: "a", Container: "app", Criticality: "High", PeriodUs: 100_000, DeadlineUs: 100_000,
		BudgetLowUs: 20_000, BudgetHighUs: 40_000, Levels: []v1alpha1.RTLevel{{Name: "some", BudgetUs: 30_000}, {Name: "more", BudgetUs: 35_000}},
		Cores: []int32{0}, Level: "low", Mode: "Reserved", Overruns: 3, Periods: 7, DwellUs: 2_000_000,
	}
	if got := d.Spec.Servers[0]; fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	plan := d.Spec.Plan[0]
	if plan.Test != rt.TestT1 || plan.ThresholdPpm != 900_000 || len(plan.Raise) != 1 || plan.Raise[0].ToUs != 40_000 || plan.Raise[0].PodUID != "a" {
		t.Errorf("the plan is %+v", plan)
	}
}

func TestServersStayWhereTheyAreWhileNothingIsKnownOfTheCores(t *testing.T) {
	t.Parallel()
	m := newMachine(2)
	m.add("a", "High", 20, 20, 0)
	m.settle(t, rtruntime.Pressure{}, start)
	for name, statusCores := range map[string][]v1alpha1.RTCoreStatus{"no agent": nil, "agent without slices": {{ID: 0, Sibling: -1, CapacityPpm: 900_000}}} {
		m.rtNode.Status.Cores = statusCores
		s := statetest.Build(m.node, m.rtNode, m.pods["a"], m.mckubes["a"], m.claims["a"])
		n, _ := s.NodeView("n")
		expectSpec(t, rtruntime.Decide(n, rtruntime.Pressure{}, start, granularity), "a@0 low 20/20")
		if len(n.Cores) != len(statusCores) {
			t.Errorf("%s: cores are %v", name, n.Cores)
		}
	}
}

// A core that enforces later than was charged: the least critical lose their core, and are told.
func TestAGranularityThatGotWorseRefusesTheLeastCritical(t *testing.T) {
	t.Parallel()
	m := newMachine(1)
	m.add("a", "High", 44, 44, 0)
	m.add("b", "Low", 44, 44, 0)
	m.settle(t, rtruntime.Pressure{}, start)
	m.cores[0].Granularity = 2000
	d := m.settle(t, rtruntime.Pressure{}, start)
	expectSpec(t, d, "a@0 low 44/44")
	if v := d.Refused["b/app"]; v.Reason != rt.ReasonCoreFull {
		t.Errorf("b is refused with %+v", v)
	}
}
