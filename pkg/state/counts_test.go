package state_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// neighbours are four containers that run with 20 of 100 ms on core 0; two ask for more than it has, one for less.
func neighbours(t *testing.T) *state.Store {
	t.Helper()
	n := statetest.Node("n", "n-1")
	objects := []runtime.Object{n, statetest.Slice(n, statetest.Cores(1)...)}
	var running []v1alpha1.RTServer
	for name, wish := range map[string]int64{"greedy": 60, "keen": 40, "modest": 5, "same": 20} {
		p := statetest.On(statetest.WithClaim(statetest.Pod("default", name, types.UID(name), "app"), "app", name), "n")
		m := statetest.McKube("default", name, name, "Middle", min(wish, 20), wish)
		objects = append(objects, p, m, statetest.Claim(p, name, "app", "n", 0, 201_000))
		r := statetest.RTServer(p, "app", 0)
		r.Criticality, r.BudgetLowUs, r.BudgetHighUs = "Middle", 20_000, 20_000
		running = append(running, r)
	}
	store, err := state.Build(state.Options{}, append(objects, statetest.RTNode(n, running...))...)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// A raise that a container only asks for takes nothing from its neighbours.
func TestRequestedRaiseTakesNothingFromNeighbours(t *testing.T) {
	t.Parallel()
	s := neighbours(t).Snapshot()
	core := view(t, s, "n").Cores[0]
	if core.Claimed != 804_000 || core.Placed != 804_000 || core.Free != 96_000 {
		t.Errorf("core is %+v", core)
	}
	for name, want := range map[string]bool{"greedy": false, "keen": false, "modest": true, "same": true} {
		pod, _ := s.PodNamed("default", name)
		for _, gate := range state.Gates(s, pod) {
			if gate.Name == state.GateCore && gate.OK != want {
				t.Errorf("%s: %+v", name, gate)
			}
		}
	}
	if best, gates := s.BestCore(server("new", rt.Low, 9, 9)); len(gates) > 0 || best.Core != 0 {
		t.Errorf("a core with 9.6 %% free does not take 9.1 %%: %+v", gates)
	}
	if _, gates := s.BestCore(server("new", rt.Low, 10, 10)); len(gates) == 0 {
		t.Error("a core with 9.6 % free takes 10.1 %")
	}
	// The eviction of one frees the 20.1 % of its claim, not its wish: 9.6 + 20.1 are less than 30.1 %.
	if plan, ok := s.Victims(server("high", rt.High, 30, 30)); !ok || len(plan.Victims) != 2 {
		t.Errorf("plan is %+v", plan)
	}
	if plan, ok := s.Victims(server("high", rt.High, 29, 29)); !ok || len(plan.Victims) != 1 {
		t.Errorf("plan is %+v", plan)
	}
}

// Two requested raises do not refuse each other. The one with reserved room counts, in all numbers.
func TestRequestedRaiseCountsOnceItIsReserved(t *testing.T) {
	t.Parallel()
	store := neighbours(t)
	grow := func(name string, ms int64) error {
		return store.Reserve(state.Reservation{
			Key: name + "/app", Node: "n", Core: 0, Server: server(name+"/app", rt.Middle, 20, ms), Until: statetest.Birth.AddDate(100, 0, 0),
		})
	}
	if grow("greedy", 60) == nil {
		t.Error("60 % fit into 29.7 %")
	}
	if err := grow("keen", 28); err != nil {
		t.Errorf("28 %% beside three of 20.1 %%: %v", err)
	}
	core := view(t, store.Snapshot(), "n").Cores[0]
	if core.Claimed != 804_000 || core.Reserved != 80_000 || core.Free != 16_000 {
		t.Errorf("core is %+v", core)
	}
	if load := view(t, store.Snapshot(), "n").Claims(&core); load.Used() != 884_000 {
		t.Errorf("the test sees %d", load.Used())
	}
	if grow("same", 22) == nil {
		t.Error("room that is reserved for one is reserved for another")
	}
	if err := grow("same", 21); err != nil {
		t.Error(err)
	}
}

// A budget that shrank frees what its claims do not take.
func TestWhatRunsBeyondItsClaimsCounts(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	p := statetest.On(statetest.WithClaim(statetest.Pod("default", "p", "p", "app"), "app", "p"), "n")
	for name, c := range map[string]struct {
		claimed rt.PPM
		runs    int64
		asks    mcv1.Criticality
		want    rt.PPM
	}{
		"still runs with more":           {201_000, 40_000, "High", 401_000},
		"shrank":                         {401_000, 20_000, "High", 401_000},
		"asks for another criticality":   {201_000, 20_000, "Low", 201_000},
		"runs with more than it asks of": {101_000, 40_000, "Low", 401_000},
	} {
		r := statetest.RTServer(p, "app", 0)
		r.Criticality, r.BudgetLowUs, r.BudgetHighUs = "High", 10_000, c.runs
		s := statetest.Build(n, statetest.Slice(n, statetest.Cores(1)...), p, statetest.McKube("default", "p", "p", c.asks, 10, 20),
			statetest.Claim(p, "p", "app", "n", 0, c.claimed), statetest.RTNode(n, r))
		core := view(t, s, "n").Cores[0]
		if core.Claimed != c.want || core.Placed != rt.PPM(c.runs*10+1000) {
			t.Errorf("%s: core is %+v", name, core)
		}
	}
}
