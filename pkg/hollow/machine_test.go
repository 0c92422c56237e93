package hollow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/hollow"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// node is a machine with what it is shown, and the time.
type node struct {
	*testing.T
	*hollow.Machine
	now  time.Time
	view hollow.View
}

// newNode has cores 1 to 3, of which core 3 keeps a reserve of 0.3 of its 0.9.
func newNode(t *testing.T) *node {
	cores := []rt.Core{
		{ID: 1, Sibling: rt.NoSibling, Capacity: 900_000, Granularity: 100},
		{ID: 2, Sibling: rt.NoSibling, Capacity: 900_000, Granularity: 100},
		{ID: 3, Sibling: rt.NoSibling, Capacity: 600_000, EscalationReserve: 300_000, Granularity: 100},
	}
	return &node{
		T: t, Machine: hollow.NewMachine(cores, begin), now: begin,
		view: hollow.View{RTNode: &v1alpha1.RTNode{ObjectMeta: metav1.ObjectMeta{Name: "n", Generation: 1}}, Containers: map[hollow.Key]hollow.Container{}},
	}
}

// srv is a server of 10 ms with budgets in microseconds.
func srv(pod, criticality string, core int32, low, high int64) v1alpha1.RTServer {
	return v1alpha1.RTServer{
		PodUID: types.UID(pod), Namespace: "default", Pod: pod, Container: "app", Criticality: criticality,
		PeriodUs: 10_000, DeadlineUs: 10_000, BudgetLowUs: low, BudgetHighUs: high, Cores: []int32{core}, Level: "low", Mode: "Elastic",
	}
}

// plan lets the servers be raised as far as they may.
func plan(core int32, threshold int64, servers ...v1alpha1.RTServer) v1alpha1.RTCorePlan {
	p := v1alpha1.RTCorePlan{Core: core, Test: "T1", ThresholdPpm: threshold}
	for _, s := range servers {
		p.Raise = append(p.Raise, v1alpha1.RTRaise{RTServerRef: v1alpha1.RTServerRef{PodUID: s.PodUID, Container: s.Container}, ToUs: s.BudgetHighUs})
	}
	return p
}

// runs puts a container with a script on the node.
func (n *node) runs(pod, script string) {
	n.Helper()
	steps, err := hollow.ParsePodScript(script)
	if err != nil {
		n.Fatal(err)
	}
	n.view.Containers[hollow.Key{Pod: types.UID(pod), Container: "app"}] = hollow.Container{Started: n.now, Base: n.now, Script: steps}
}

func (n *node) spec(servers []v1alpha1.RTServer, plans ...v1alpha1.RTCorePlan) {
	n.view.RTNode = n.view.RTNode.DeepCopy()
	n.view.RTNode.Generation++
	n.view.RTNode.Spec = v1alpha1.RTNodeSpec{Servers: servers, Plan: plans}
	n.Observe(n.view, n.now)
}

// pass lets time pass; the controller and the kubelet change nothing.
func (n *node) pass(d time.Duration) v1alpha1.RTNodeStatus {
	n.now = n.now.Add(d)
	n.Observe(n.view, n.now)
	return n.Status()
}

func (n *node) server(pod string) v1alpha1.RTServerStatus {
	n.Helper()
	for _, s := range n.Status().Servers {
		if s.PodUID == types.UID(pod) {
			return s
		}
	}
	n.Fatalf("no server of %s", pod)
	return v1alpha1.RTServerStatus{}
}

// has checks the budget in force, its level and core.
func (n *node) has(when, pod string, budget int64, level string, core int32) {
	n.Helper()
	s := n.server(pod)
	if s.BudgetUs != budget || s.Level != level || budget > 0 && !slices.Equal(s.Cores, []int32{core}) || s.Error != "" {
		n.Errorf("%s: %s has %+v, want %d us at level %s on core %d", when, pod, s, budget, level, core)
	}
}

func (n *node) reserved(core int) int64 {
	for _, c := range n.Status().Cores {
		if int(c.ID) == core {
			return c.ReservedPpm
		}
	}
	n.Fatalf("no core %d", core)
	return 0
}

func TestASilentAgentDoesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	steps, err := hollow.ParseNodeScript("2s silent 5s; 3s pressure 95")
	if err != nil {
		t.Fatal(err)
	}
	n.SetScript(steps, begin)
	n.runs("a", "3s overrun 1; 8s overrun 1")
	a := srv("a", "High", 1, 2_000, 4_000)
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	n.pass(4 * time.Second)
	if !n.Silent() {
		t.Fatal("the agent is not silent at 4 s")
	}
	if at, ok := n.Next(); !ok || !at.Equal(begin.Add(7*time.Second)) {
		t.Errorf("next at %s, want the end of the silence", at.Sub(begin))
	}
	n.pass(3 * time.Second)
	if s := n.server("a"); n.Silent() || s.Overruns != 0 || s.Level != "low" {
		t.Errorf("silent %v, %+v: nobody saw the overrun", n.Silent(), s)
	}
	if p := n.Status().Pressure; p.CPUPercent != 95 || p.BusySince == nil || !p.BusySince.Time.Equal(begin.Add(3*time.Second)) {
		t.Errorf("pressure %+v", p)
	}
	n.pass(time.Second)
	n.has("it sees again", "a", 4_000, "hi", 1)
	n.view.Dead = true
	n.pass(time.Minute)
	if !n.Silent() {
		t.Error("the agent of a dead machine is not silent")
	}
}

func TestPressure(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	steps, _ := hollow.ParseNodeScript("1s pressure 90; 2s pressure 99; 3s pressure 89")
	n.SetScript(steps, begin)
	for _, want := range []string{"0 false 0s", "90 true 1s", "99 true 1s", "89 false 0s"} {
		p := n.Status().Pressure
		since := time.Duration(0)
		if p.BusySince != nil {
			since = p.BusySince.Sub(begin)
		}
		if got := fmt.Sprintf("%d %v %s", p.CPUPercent, p.BusySince != nil, since); got != want {
			t.Errorf("after %s: %s, want %s", n.now.Sub(begin), got, want)
		}
		n.pass(time.Second)
	}
}

func TestGranularityIsChargedToNewcomers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "")
	n.runs("b", "")
	n.spec([]v1alpha1.RTServer{srv("a", "High", 1, 4_400, 4_400)})
	steps, _ := hollow.ParseNodeScript("1s granularity 400")
	n.SetScript(steps, begin)
	if s := n.pass(time.Second); s.BudgetGranularityUs != 400 || n.reserved(1) != 480_000 {
		t.Errorf("granularity %d us, %d ppm", s.BudgetGranularityUs, n.reserved(1))
	}
	if g := *n.Devices()[0].Attributes[v1alpha1.AttributeGranularity].IntValue; g != 400 {
		t.Errorf("the devices say %d us", g)
	}
	n.spec([]v1alpha1.RTServer{srv("a", "High", 1, 4_400, 4_400), srv("b", "High", 1, 4_300, 4_300)})
	n.has("it stays", "a", 4_400, "low", 1)
	if s := n.server("b"); !strings.Contains(s.Error, "needs 470000 ppm") {
		t.Errorf("%+v", s)
	}
}

func TestDriftIsCountedAndSetRight(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "")
	n.spec([]v1alpha1.RTServer{srv("a", "High", 1, 2_000, 4_000)})
	steps, _ := hollow.ParseNodeScript("1s drift; 10s drift 3s")
	n.SetScript(steps, begin)
	for _, want := range []struct {
		at      time.Duration
		drift   int64
		drifted bool
	}{{500, 0, false}, {1500, 1, true}, {2500, 1, false}, {11500, 3, true}, {20000, 5, false}} {
		s := n.pass(begin.Add(want.at * time.Millisecond).Sub(n.now))
		if s.Servers[0].Drift != want.drift || meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionDrifted) != want.drifted {
			t.Errorf("after %s: %d times, %+v", n.now.Sub(begin), s.Servers[0].Drift, s.Conditions)
		}
		n.has("set right", "a", 2_000, "low", 1)
	}
}

func TestResumeGoesOnWithWhatWasReported(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "1s overrun 2; 10s overrun 1")
	a := srv("a", "High", 1, 2_000, 4_000)
	n.spec([]v1alpha1.RTServer{a}, plan(1, 900_000, a))
	reported := n.pass(5 * time.Second)
	heartbeat := metav1.NewMicroTime(n.now)
	reported.HeartbeatTime = &heartbeat
	next := newNode(t)
	next.view, next.now = n.view, n.now.Add(time.Second)
	next.Resume(reported)
	if s := next.pass(0).Servers[0]; s.Overruns != 2 || s.LastOverrunTime == nil || s.BudgetUs != 2_000 {
		t.Errorf("%+v", s)
	}
	if s := next.pass(4 * time.Second).Servers[0]; s.Overruns != 3 || s.Level != "hi" {
		t.Errorf("the next step: %+v", s)
	}
}

func TestStatusIsTheSameWhenNothingHappens(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.runs("a", "")
	n.spec([]v1alpha1.RTServer{srv("a", "High", 1, 2_000, 4_000)})
	before := fmt.Sprintf("%+v", n.Status())
	if after := fmt.Sprintf("%+v", n.pass(time.Hour)); after != before {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
	if at, ok := n.Next(); ok {
		t.Errorf("something is due at %s", at)
	}
}
