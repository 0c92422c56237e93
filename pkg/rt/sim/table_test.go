package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rt/sim"
)

// rule is a line of the tables in docs/admission.md.
type rule struct {
	name     string
	test     func(core rt.Core, servers []rt.Server) bool
	reaction sim.Reaction
	sound    bool
}

var rules = []rule{
	{"low budgets fit, raise now", lowFits, sim.Raise, false},
	{"each mode fits, raise now, Low kept", modesFit, sim.Raise, false},
	{"each mode fits, raise now, Low squeezed at its next period", modesFit, sim.SqueezeNext, false},
	{"each mode fits, raise now, Low squeezed now", modesFit, sim.SqueezeNow, false},
	{"T1, raise now", t1, sim.Raise, true},
	{"T1 or EDF-VD, plan", t1OrEDFVD, sim.Account, true},
	{"T1k, one window", t1kFits, sim.Window, true},
	{"AMC-rtb, deadline-monotonic, plan", amcFits, sim.Account, true},
	{"everybody's high budget fits", highFits, sim.Raise, true},
}

func highFits(core rt.Core, servers []rt.Server) bool {
	all := append([]rt.Server(nil), servers...)
	for i := range all {
		all[i].Low = all[i].High
	}
	return lowFits(core, all)
}

func t1OrEDFVD(core rt.Core, servers []rt.Server) bool {
	core.Policy = rt.EDFVirtualDeadlines
	return rt.Holds(core, servers).Admitted
}

func t1kFits(core rt.Core, servers []rt.Server) bool {
	return rt.T1k(1, core, limitedAll(servers)).Admitted
}

func amcFits(core rt.Core, servers []rt.Server) bool {
	core.Policy = rt.FixedPriority
	return rt.Holds(core, servers).Admitted
}

func limitedAll(servers []rt.Server) []rt.Server {
	all := append([]rt.Server(nil), servers...)
	for i := range all {
		all[i].Limited = true
	}
	return all
}

// config is the experiment of a rule, on the core that its test is for.
func (u rule) config(core rt.Core, servers []rt.Server) sim.Config {
	c := sim.Config{Core: core, Servers: servers, Reaction: u.reaction, Windows: 1, Horizon: horizon}
	switch u.name[:3] {
	case "T1 ":
		c.Core.Policy, c.Discard = rt.EDFVirtualDeadlines, true
	case "AMC":
		c.Core.Policy = rt.FixedPriority
	case "T1k":
		c.Servers = limitedAll(servers)
	}
	c.Plan = rt.PlanCore(c.Core, c.Servers)
	return c
}

// Deadline-monotonic priorities, for the fixed-priority rule.
func prioritised(servers []rt.Server) []rt.Server {
	for i := range servers {
		servers[i].Priority = int(rt.MaxPeriod - servers[i].Window())
	}
	return servers
}

const (
	acceptanceSets = 20_000
	brokenSets     = 250
)

// The table of docs/admission.md: how many of random sets each rule admits, and how many of the first 250
// break. Sound rules break none.
func TestTableOfRandomSets(t *testing.T) {
	core := rt.Core{Sibling: rt.NoSibling, Capacity: rt.MaxCapacity}
	for _, u := range rules {
		admitted, broken, tried := 0, 0, 0
		for seed := range uint64(acceptanceSets) {
			servers := prioritised(set(rand.New(rand.NewPCG(seed, 0)), false))
			if !u.test(core, servers) {
				continue
			}
			if admitted++; tried >= brokenSets {
				continue
			}
			tried++
			c := u.config(core, servers)
			c.Next = sim.Workload(rand.New(rand.NewPCG(seed, 1)), servers, horizon/2, sim.Sporadic...)
			if result := sim.Run(c); len(result.Breaks) > 0 {
				broken++
			}
		}
		u.report(t, fmt.Sprintf("%.1f %%", float64(100*admitted)/acceptanceSets), broken, tried)
	}
}

func (u rule) report(t *testing.T, admitted string, broken, tried int) {
	t.Logf("| %s | %s | %d of %d |", u.name, admitted, broken, tried)
	if u.sound != (broken == 0) {
		t.Errorf("%s: %d of %d sets broke", u.name, broken, tried)
	}
}

// The same with containers of automotive runnables, and jobs that take as long as theirs.
func TestTableOfAutomotiveSets(t *testing.T) {
	core := rt.Core{Sibling: rt.NoSibling, Capacity: rt.MaxCapacity, Granularity: 10}
	const sets, length = 4_000, 500_000
	for _, u := range rules[4:] {
		admitted, broken, tried, raises := 0, 0, 0, 0
		for seed := range uint64(sets) {
			r := rand.New(rand.NewPCG(seed, 2))
			containers := sim.NewAutomotives(r, 3+r.IntN(5))
			servers := make([]rt.Server, 0, len(containers))
			for _, c := range containers {
				servers = append(servers, c.Server)
			}
			if !u.test(core, prioritised(servers)) {
				continue
			}
			if admitted++; tried >= 40 {
				continue
			}
			tried++
			c := u.config(core, servers)
			c.Horizon, c.Late = length, sim.Lateness(r, core.Granularity)
			c.Next = sim.AutomotiveWorkload(r, containers)
			result := sim.Run(c)
			raises += result.Raises
			if len(result.Breaks) > 0 {
				broken++
			}
		}
		mustHappen(t, "raises", raises)
		u.report(t, fmt.Sprintf("%.1f %%", float64(100*admitted)/sets), broken, tried)
	}
}

// The oracle would notice a test that admits 1 % too much: sets that fill 101 % of a core break.
func TestOracleHasNoSlack(t *testing.T) {
	core := rt.Core{Sibling: rt.NoSibling, Capacity: rt.MaxCapacity}
	generous := core
	generous.Capacity += 10_000
	for _, u := range rules[4:7] {
		broken, tried := 0, 0
		for seed := uint64(0); tried < 200; seed++ {
			servers := set(rand.New(rand.NewPCG(seed, 0)), false)
			if u.test(core, servers) || !u.test(generous, servers) {
				continue
			}
			tried++
			c := u.config(generous, servers)
			c.Core.Capacity = core.Capacity
			c.Next = sim.Workload(rand.New(rand.NewPCG(seed, 1)), servers, horizon, sim.Always)
			if result := sim.Run(c); len(result.Breaks) > 0 {
				broken++
			}
		}
		t.Logf("%s: %d of %d sets that are up to 1 %% too large broke", u.name, broken, tried)
		if broken == 0 {
			t.Errorf("%s: not one of %d sets that are up to 1 %% too large broke", u.name, tried)
		}
	}
}
