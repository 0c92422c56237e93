package sim_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rt/sim"
)

func holdsOn(core rt.Core) func([]rt.Server) bool {
	return func(servers []rt.Server) bool { return rt.Holds(core, servers).Admitted }
}

// T1: whichever server overruns, whenever, and for however long raised budgets are kept.
func TestT1KeepsEveryBudget(t *testing.T) {
	raises := 0
	rapid.Check(t, func(t *rapid.T) {
		core := drawCore(t, rt.EDF)
		servers := draw{constrained: true}.admitted(t, core, holdsOn(core))
		c := experiment(t, core, servers)
		c.Reaction = sim.Raise
		c.Wake = rapid.SampledFrom([]sim.Wake{sim.WakeScaled, sim.WakeReserved}).Draw(t, "wake")
		c.Dwell = rapid.IntRange(0, 3).Draw(t, "dwell")
		result := mustKeep(t, c)
		if result.MostPromised > core.Capacity {
			t.Fatalf("%d ppm were promised of %d", result.MostPromised, core.Capacity)
		}
		raises += result.Raises
	})
	mustHappen(t, "raises", raises)
}

// T1k with one or two windows, and full use of capacity and reserve.
func TestT1kKeepsEveryBudgetWithTheWindowRule(t *testing.T) {
	raises, refusals := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		core := drawCore(t, rt.EDF)
		core.EscalationReserve = rt.PPM(rapid.Int64Range(0, 300_000).Draw(t, "reserve"))
		core.Capacity -= core.EscalationReserve
		k := rapid.IntRange(1, 2).Draw(t, "k")
		servers := draw{constrained: true, limited: true}.admitted(t, core, func(servers []rt.Server) bool {
			return rt.T1k(k, core, servers).Admitted
		})
		c := experiment(t, core, servers)
		c.Reaction, c.Windows = sim.Window, k
		result := mustKeep(t, c)
		raises, refusals = raises+result.Raises, refusals+result.Refusals
	})
	mustHappen(t, "raises", raises)
	mustHappen(t, "refused raises", refusals)
}

// The form that the scheduler can check, charges against capacity and steps against the reserve,
// implies T1k.
func TestHoldsImpliesT1k(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		core := drawCore(t, rt.EDF)
		core.EscalationReserve = rt.PPM(rapid.Int64Range(0, 300_000).Draw(t, "reserve"))
		core.Capacity -= core.EscalationReserve
		servers := draw{constrained: true, limited: true}.admitted(t, core, holdsOn(core))
		if v := rt.T1k(rt.Windows, core, servers); !v.Admitted {
			t.Fatalf("%v: %+v", v, servers)
		}
		c := experiment(t, core, servers)
		c.Reaction, c.Windows = sim.Window, rt.Windows
		mustKeep(t, c)
	})
}

// EDF-VD: sets that T1 refuses. Jobs are sporadic, as the theorem says.
func TestEDFVDKeepsEveryBudget(t *testing.T) {
	beyond, raises := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		core := drawCore(t, rt.EDFVirtualDeadlines)
		servers := draw{}.admitted(t, core, holdsOn(core))
		v := rt.Holds(core, servers)
		if v.Test != rt.TestEDFVD {
			return
		}
		beyond++
		c := experiment(t, core, servers)
		c.Reaction, c.Plan, c.Discard = sim.Account, rt.PlanCore(core, servers), true
		c.Next = sim.Workload(random(t), servers, horizon/2, sim.Sporadic...)
		raises += mustKeep(t, c).Raises
	})
	mustHappen(t, "sets beyond T1", beyond)
	mustHappen(t, "raises", raises)
}

// AMC-rtb: servers that keep budgets while they sleep, windows of any phase.
func TestAMCrtbKeepsEveryBudget(t *testing.T) {
	switching, raises := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		core := drawCore(t, rt.FixedPriority)
		servers := draw{constrained: true, priorities: true}.admitted(t, core, holdsOn(core))
		plan := rt.PlanCore(core, servers)
		c := experiment(t, core, servers)
		c.Reaction, c.Plan = sim.Account, plan
		raises += mustKeep(t, c).Raises
		if plan.ModeSwitch {
			switching++
		}
	})
	mustHappen(t, "raises", raises)
	mustHappen(t, "sets that need the mode switch", switching)
}

// mustHappen keeps a property from holding because nothing happens.
func mustHappen(t *testing.T, what string, n int) {
	t.Helper()
	t.Logf("%s: %d", what, n)
	if n == 0 {
		t.Errorf("no %s in all experiments: the property shows nothing", what)
	}
}

// Containers of automotive runnables, whose periods span three orders of magnitude, under any pattern
// of overruns.
func TestAutomotiveSetsKeepEveryBudget(t *testing.T) {
	raises := 0
	rapid.Check(t, func(t *rapid.T) {
		core := rt.Core{Sibling: rt.NoSibling, Capacity: rt.MaxCapacity, Granularity: 10}
		core.Policy = rapid.SampledFrom([]rt.Policy{rt.EDF, rt.FixedPriority}).Draw(t, "policy")
		r := random(t)
		var servers []rt.Server
		for _, a := range sim.NewAutomotives(r, rapid.IntRange(2, 12).Draw(t, "containers")) {
			a.Priority = int(rt.MaxPeriod - a.Period)
			if with := append(servers, a.Server); rt.Holds(core, with).Admitted {
				servers = with
			}
		}
		c := experiment(t, core, servers)
		c.Reaction, c.Plan = sim.Account, rt.PlanCore(core, servers)
		raises += mustKeep(t, c).Raises
	})
	mustHappen(t, "raises", raises)
}
