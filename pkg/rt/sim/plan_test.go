package sim_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rt/sim"
)

// A plan of servers that pass their test: overruns in any order raise and squeeze as the plan says, nothing
// breaks, and what is promised stays within the threshold.
func TestPlansKeepEveryBudget(t *testing.T) {
	raises, refusals, squeezes := 0, 0, 0
	keeps := func(t *rapid.T) {
		core := drawCore(t, rt.EDF)
		core.EscalationReserve = rt.PPM(rapid.Int64Range(0, 300_000).Draw(t, "reserve"))
		core.Capacity -= core.EscalationReserve
		servers := draw{constrained: true, limited: true}.admitted(t, core, holdsOn(core))
		c := experiment(t, core, servers)
		c.Reaction, c.Plan = sim.Account, rt.PlanCore(core, servers)
		result := mustKeep(t, c)
		if result.MostPromised > c.Plan.Threshold {
			t.Fatalf("%d ppm were promised, the threshold is %d: %+v\nservers %+v", result.MostPromised, c.Plan.Threshold, c.Plan, servers)
		}
		raises, refusals, squeezes = raises+result.Raises, refusals+result.Refusals, squeezes+result.Squeezes
	}
	// One run of 500 sets in seven has neither a refusal nor a squeeze.
	for round := 0; round == 0 || round < 50 && (refusals == 0 || squeezes == 0); round++ {
		rapid.Check(t, keeps)
	}
	mustHappen(t, "raises", raises)
	mustHappen(t, "refused raises", refusals)
	mustHappen(t, "squeezes", squeezes)
}

// A plan of servers that fit with low budgets only: raises wait for squeezes, and never take what is
// promised above the threshold.
func TestPlansOfFullCoresStayBelowTheThreshold(t *testing.T) {
	raises := 0
	rapid.Check(t, func(t *rapid.T) {
		core := drawCore(t, rt.EDF)
		servers := draw{}.admitted(t, core, func(servers []rt.Server) bool {
			return rt.Holds(core, lowOnly(servers)).Admitted
		})
		plan := rt.PlanCore(core, servers)
		if plan.Holds {
			return
		}
		c := experiment(t, core, servers)
		c.Reaction, c.Plan = sim.Account, plan
		result := mustKeep(t, c)
		if result.MostPromised > core.Capacity {
			t.Fatalf("%d ppm were promised of %d: %+v\nservers %+v", result.MostPromised, core.Capacity, plan, servers)
		}
		raises += result.Raises
	})
	mustHappen(t, "raises", raises)
}

// lowOnly are the servers as if none could be raised.
func lowOnly(servers []rt.Server) []rt.Server {
	out := slices.Clone(servers)
	for i := range out {
		out[i].High = out[i].Low
	}
	return out
}
