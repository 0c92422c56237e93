package state_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

var criticalities = []mcv1.Criticality{"Low", "Middle", "High"}

// drawCluster is a cluster of a few nodes of different cores with servers on some of them.
func drawCluster(t *rapid.T) []runtime.Object {
	var out []runtime.Object
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		n := statetest.Node(fmt.Sprintf("node-%d", i), types.UID(fmt.Sprintf("node-%d", i)))
		n.Spec.Unschedulable = rapid.IntRange(0, 9).Draw(t, "cordoned") == 0
		cores := statetest.Cores(rapid.IntRange(1, 4).Draw(t, "cores"))
		for c := range cores {
			if rapid.Bool().Draw(t, "reserves") {
				cores[c].Capacity, cores[c].EscalationReserve = 700_000, 200_000
			}
			if rapid.IntRange(0, 9).Draw(t, "coarse") == 0 {
				cores[c].Granularity = 400
			}
		}
		out = append(out, n, statetest.Slice(n, cores...))
		var running []v1alpha1.RTServer
		for c := range cores {
			for s := range rapid.IntRange(0, 3).Draw(t, "servers") {
				name := fmt.Sprintf("p-%d-%d-%d", i, c, s)
				p := statetest.On(statetest.WithClaim(statetest.Pod("default", name, types.UID(name), "app"), "app", name), n.Name)
				low := rapid.Int64Range(5, 30).Draw(t, "low")
				wish := max(1, low+rapid.SampledFrom([]int64{0, 0, -4, 50}).Draw(t, "wish"))
				m := statetest.McKube("default", name, name, rapid.SampledFrom(criticalities).Draw(t, "criticality"), wish, wish)
				out = append(out, p, m, statetest.Claim(p, name, "app", n.Name, c, rt.PPM(low*10_000+1_000)))
				if rapid.Bool().Draw(t, "runs") {
					running = append(running, statetest.RTServer(p, "app", int32(c)))
				}
			}
		}
		out = append(out, statetest.RTNode(n, running...))
	}
	return out
}

func drawServer(t *rapid.T) rt.Server {
	low := rapid.Int64Range(1, 80).Draw(t, "budget")
	s := server("new", rapid.SampledFrom([]rt.Criticality{rt.Low, rt.Middle, rt.High}).Draw(t, "criticality"), low, min(90, low+rapid.Int64Range(0, 25).Draw(t, "step")))
	s.Limited = rapid.Bool().Draw(t, "limited")
	s.Preferred = rapid.SampledFrom([][]int{nil, nil, {1}, {2, 3}}).Draw(t, "preferred")
	return s
}

// open are the cores that a new claim may be given, with their loads.
func open(s *state.Snapshot) (out []state.Candidate, loads []rt.Load) {
	for n := range s.Nodes() {
		if !n.Offered || !n.Ready || !n.Schedulable || n.Deleting || n.Agent == state.AgentSilent || n.Granularity > s.Granularity() {
			continue
		}
		for i := range n.Cores {
			out = append(out, state.Candidate{Node: n.Name, Core: n.Cores[i].ID})
			loads = append(loads, n.Claims(&n.Cores[i]))
		}
	}
	return out, loads
}

// The index finds what looking at every core finds.
func TestBestCoreIsTheBestOfAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := statetest.Build(drawCluster(t)...)
		wanted := drawServer(t)
		refs, loads := open(s)
		var fit []int
		for i, load := range loads {
			if rt.Admit(load.Core, load.Servers, wanted).Admitted {
				fit = append(fit, i)
			}
		}
		cheapest := func(a, b int) int {
			return cmp.Or(cmp.Compare(rank(wanted, refs[a].Core), rank(wanted, refs[b].Core)), cmp.Compare(loads[a].Free(), loads[b].Free()))
		}
		slices.SortFunc(fit, cheapest)
		got, gates := s.BestCore(wanted)
		at := slices.IndexFunc(refs, func(c state.Candidate) bool { return c.Node == got.Node && c.Core == got.Core })
		switch {
		case len(fit) == 0 && len(gates) == 0:
			t.Fatalf("%+v was found, and none fits", got)
		case len(fit) > 0 && (len(gates) > 0 || at < 0 || !got.Verdict.Admitted || cheapest(at, fit[0]) != 0):
			t.Fatalf("%+v was found (%+v), want one as good as %+v", got, gates, refs[fit[0]])
		}
	})
}

// rank is how early a core is preferred.
func rank(s rt.Server, core int) int {
	if i := slices.Index(s.Preferred, core); i >= 0 {
		return i
	}
	return len(s.Preferred)
}

// The index finds victims whenever there are some, which cost as little as looking at every core finds; without them
// the server fits, and all are of strictly lower criticality.
func TestVictimsCostAsLittleAsTheyMust(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := statetest.Build(drawCluster(t)...)
		wanted := drawServer(t)
		if _, gates := s.BestCore(wanted); len(gates) == 0 {
			return
		}
		least := int64(-1)
		_, loads := open(s)
		for _, load := range loads {
			if loss, ok := leastLoss(load, wanted); ok && (least < 0 || loss < least) {
				least = loss
			}
		}
		plan, ok := s.Victims(wanted)
		loss := int64(0)
		for _, load := range loads {
			for _, o := range load.Servers {
				if slices.ContainsFunc(plan.Victims, func(v state.ServerView) bool { return v.ID == o.ID }) {
					loss += rt.Loss(o.Criticality, o.Charge(load.Granularity))
				}
			}
		}
		if ok != (least > 0) || ok && loss != least {
			t.Fatalf("plan is %+v, which costs %d, want %d", plan, loss, least)
		}
		if ok && !plan.Verdict.Admitted {
			t.Fatalf("without its victims: %s", plan.Verdict)
		}
		for _, v := range plan.Victims {
			if v.Criticality >= wanted.Criticality {
				t.Fatalf("%s is a victim of %s", v.Criticality, wanted.Criticality)
			}
		}
	})
}

// leastLoss looks at all subsets of the less critical.
func leastLoss(load rt.Load, wanted rt.Server) (least int64, ok bool) {
	for mask := range 1 << len(load.Servers) {
		var rest []rt.Server
		loss, lower := int64(0), true
		for i, o := range load.Servers {
			if mask&(1<<i) == 0 {
				rest = append(rest, o)
				continue
			}
			loss += rt.Loss(o.Criticality, o.Charge(load.Granularity))
			lower = lower && o.Criticality < wanted.Criticality
		}
		if lower && (!ok || loss < least) && rt.Admit(load.Core, rest, wanted).Admitted {
			least, ok = loss, true
		}
	}
	return least, ok
}

// The seed's example: Middle 40 %, Low 35 %, then High 25 % on one core of 90 %.
func TestTheLowServerGivesWayToTheHighOne(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	objects := []runtime.Object{n, statetest.Slice(n, statetest.Cores(1)...)}
	for name, c := range map[string]struct {
		criticality mcv1.Criticality
		ms          int64
	}{"middle": {"Middle", 40}, "low": {"Low", 35}} {
		p := statetest.On(statetest.WithClaim(statetest.Pod("default", name, types.UID(name), "app"), "app", name), "n")
		objects = append(objects, p, statetest.McKube("default", name, name, c.criticality, c.ms, c.ms), statetest.Claim(p, name, "app", "n", 0, rt.PPM(c.ms*10_000+1000)))
	}
	s := statetest.Build(objects...)
	plan, ok := s.Victims(server("high", rt.High, 25, 25))
	if !ok || len(plan.Victims) != 1 || plan.Victims[0].Pod != "low" || plan.Pods()[0] != "low" {
		t.Errorf("plan is %+v", plan)
	}
	if _, ok := s.Victims(server("low-too", rt.Low, 25, 25)); ok {
		t.Error("Low preempts Low")
	}
	if _, ok := s.Victims(server("high", rt.High, 10, 10)); ok {
		t.Error("there are victims where none is needed")
	}
}

// As many as it takes: 80 % need three of 25 %, and of two cores the one whose servers matter less.
func TestManyVictims(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	objects := []runtime.Object{n, statetest.Slice(n, statetest.Cores(2)...)}
	for core, criticality := range []mcv1.Criticality{"Middle", "Low"} {
		for i := range 3 {
			name := fmt.Sprintf("%d-%d", core, i)
			p := statetest.On(statetest.WithClaim(statetest.Pod("default", name, types.UID(name), "app"), "app", name), "n")
			objects = append(objects, p, statetest.McKube("default", name, name, criticality, 25, 25), statetest.Claim(p, name, "app", "n", core, 251_000))
		}
	}
	plan, ok := statetest.Build(objects...).Victims(server("high", rt.High, 80, 80))
	if !ok || len(plan.Victims) != 3 || plan.Core != 1 {
		t.Errorf("plan is %+v", plan)
	}
}

// Mere reservations, and claims without a known container, make no room.
func TestReservationsAndUnknownClaimsAreNoVictims(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	gone := statetest.Pod("default", "gone", "gone", "app")
	store, err := state.Build(state.Options{}, n, statetest.Slice(n, statetest.Cores(2)...), statetest.Claim(gone, "gone", "app", "n", 0, 500_000))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Reserve(state.Reservation{Key: "k", Node: "n", Core: 1, Server: server("k", rt.Low, 50, 50), Until: statetest.Birth.AddDate(100, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	if plan, ok := store.Snapshot().Victims(server("high", rt.High, 60, 60)); ok {
		t.Errorf("plan is %+v", plan)
	}
}

func TestBreaks(t *testing.T) {
	t.Parallel()
	objects := statetest.Crowd(2)
	// Three more of 60 % leave one core of the other node for 60 %.
	for i := range 3 {
		name := fmt.Sprintf("big-%d", i)
		p := statetest.On(statetest.WithClaim(statetest.Pod("default", name, types.UID(name), "app"), "app", name), "node-00")
		objects = append(objects, p, statetest.McKube("default", name, name, criticalities[i], 60, 60), statetest.Claim(p, name, "app", "node-00", 1+i, 601_000))
		if i < 2 {
			q := statetest.On(statetest.WithClaim(statetest.Pod("default", "x-"+name, types.UID("x-"+name), "app"), "app", "x-"+name), "node-01")
			objects = append(objects, q, statetest.McKube("default", "x-"+name, "x-"+name, "High", 60, 60), statetest.Claim(q, "x-"+name, "app", "node-01", 1+i, 601_000))
		}
	}
	var names []string
	for _, v := range statetest.Build(objects...).Breaks("node-00") {
		names = append(names, v.Pod)
	}
	// The High one takes the core of 90 %; nothing of what is left takes 60 % or 50 %.
	if want := []string{"big-0", "big-1", "pod-00"}; !slices.Equal(names, want) {
		t.Errorf("%v break, want %v", names, want)
	}
	if got := statetest.Build(statetest.Crowd(2)...).Breaks("node-00"); len(got) != 0 {
		t.Errorf("%+v break though there is room", got)
	}
	if got := statetest.Build().Breaks("nowhere"); got != nil {
		t.Errorf("%+v break on a node that is not there", got)
	}
}

// The containers of a pod go to one node or none.
func TestContainersOfAPodBreakTogether(t *testing.T) {
	t.Parallel()
	a, b, c := statetest.Node("a", "a-1"), statetest.Node("b", "b-1"), statetest.Node("c", "c-1")
	p := statetest.On(statetest.WithClaim(statetest.WithClaim(statetest.Pod("default", "p", "p-1", "one", "two"), "one", "p-one"), "two", "p-two"), "a")
	first, second := statetest.McKube("default", "one", "p", "High", 60, 60), statetest.McKube("default", "two", "p", "High", 60, 60)
	first.Spec.Container, second.Spec.Container = "one", "two"
	objects := []runtime.Object{
		a, b, c, statetest.Slice(a, statetest.Cores(2)...), statetest.Slice(b, statetest.Cores(1)...), statetest.Slice(c, statetest.Cores(1)...), p, first, second,
		statetest.Claim(p, "p-one", "one", "a", 0, 601_000), statetest.Claim(p, "p-two", "two", "a", 1, 601_000),
	}
	if got := statetest.Build(objects...).Breaks("a"); len(got) != 2 {
		t.Errorf("%+v break, want both", got)
	}
	d := statetest.Node("d", "d-1")
	if got := statetest.Build(append(objects, d, statetest.Slice(d, statetest.Cores(2)...))...).Breaks("a"); len(got) != 0 {
		t.Errorf("%+v break, want none", got)
	}
}

func TestAccepts(t *testing.T) {
	t.Parallel()
	plain := func() *corev1.Node { return statetest.Node("n", "n-1") }
	pod := func() *corev1.Pod { return statetest.Pod("default", "p", "p-1", "app") }
	selecting := pod()
	selecting.Spec.NodeSelector = map[string]string{"zone": "x"}
	tainted, cordoned, gone, sick := plain(), plain(), plain(), plain()
	tainted.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
	tolerating := pod()
	tolerating.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	cordoned.Spec.Unschedulable = true
	gone.DeletionTimestamp = &metav1.Time{Time: statetest.Birth}
	sick.Status.Conditions = nil
	elsewhere, filled := statetest.McKube("default", "m", "p", "Low", 1, 1), statetest.McKube("default", "m", "p", "Low", 1, 1)
	elsewhere.Spec.Node, filled.Spec.Node = "other", "other"
	filled.Annotations = map[string]string{mcv1.AnnotationFilledNode: "other"}
	for name, c := range map[string]struct {
		node   *corev1.Node
		pod    *corev1.Pod
		mckube *mcv1.McKube
		want   string
	}{
		"any node":       {plain(), pod(), nil, ""},
		"selector":       {plain(), selecting, nil, "the pod's node selector or affinity rules it out"},
		"taint":          {tainted, pod(), nil, "taint k=v:NoSchedule is not tolerated"},
		"toleration":     {tainted, tolerating, nil, ""},
		"cordoned":       {cordoned, pod(), nil, "the node is cordoned"},
		"deleting":       {gone, pod(), nil, "the node is being deleted"},
		"not ready":      {sick, pod(), nil, "the node is not ready"},
		"McKube's node":  {plain(), pod(), elsewhere, "McKube m names node other"},
		"filled-in node": {plain(), pod(), filled, ""},
	} {
		objects := []runtime.Object{c.node, statetest.Slice(c.node, statetest.Cores(1)...), c.pod}
		if c.mckube != nil {
			objects = append(objects, c.mckube)
		}
		s := statetest.Build(objects...)
		p, _ := s.PodNamed("default", "p")
		if ok, reason := s.Accepts(view(&testing.T{}, s, "n"), p); ok != (c.want == "") || reason != c.want {
			t.Errorf("%s: %v, %q; want %q", name, ok, reason, c.want)
		}
	}
}

// The McKube says which of the cores that admit a container it goes to, or else the node's label.
func TestHowACoreIsChosen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		label string
		fit   rt.Fit
		want  int
	}{
		{"", "", 0}, {"Pack", "", 0}, {"Spread", "", 1}, {"spread out", "", 0}, {"Spread", rt.BestFit, 0}, {"", rt.WorstFit, 1},
	} {
		n := statetest.Node("n", "n-1")
		if c.label != "" {
			n.Labels = map[string]string{v1alpha1.LabelCoreSelection: c.label}
		}
		p := statetest.On(statetest.WithClaim(statetest.Pod("default", "p", "p", "app"), "app", "p"), "n")
		s := statetest.Build(n, statetest.Slice(n, statetest.Cores(2)...), p, statetest.McKube("default", "p", "p", "High", 20, 20), statetest.Claim(p, "p", "app", "n", 0, 201_000))
		wanted := server("x", rt.Low, 10, 10)
		wanted.Fit = c.fit
		if got, gates := s.BestCoreOn("n", wanted); len(gates) > 0 || got.Core != c.want {
			t.Errorf("label %q, fit %q: core %d, %+v; want %d", c.label, c.fit, got.Core, gates, c.want)
		}
	}
}

// A core for a container that runs already must pass in both packings.
func TestBestCoreOnANodePassesInBothPackings(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	claimed := statetest.On(statetest.WithClaim(statetest.Pod("default", "claimed", "claimed", "app"), "app", "claimed"), "n")
	moved := statetest.RTServer(claimed, "app", 1)
	moved.Criticality, moved.BudgetLowUs, moved.BudgetHighUs = "High", 60_000, 60_000
	s := statetest.Build(n, statetest.Slice(n, statetest.Cores(3)...), claimed, statetest.McKube("default", "claimed", "claimed", "High", 60, 60),
		statetest.Claim(claimed, "claimed", "app", "n", 0, 601_000), statetest.RTNode(n, moved))
	got, gates := s.BestCoreOn("n", server("x", rt.Low, 50, 50))
	if len(gates) > 0 || got.Core != 2 {
		t.Errorf("core %d, %+v; want 2: 0 is claimed and 1 is used", got.Core, gates)
	}
	if _, gates := s.BestCoreOn("n", server("x", rt.Low, 91, 91)); len(gates) != 1 || gates[0].Reason != state.ReasonNoCoreFits || len(gates[0].Numbers) != 3 {
		t.Errorf("gates are %+v", gates)
	}
	if _, gates := s.BestCoreOn("other", server("x", rt.Low, 1, 1)); len(gates) != 1 || gates[0].Reason != state.ReasonNodeHasNoCores {
		t.Errorf("gates are %+v", gates)
	}
}
