package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rt/sim"
)

// unsound is a rule that looks right and is not: who passes the test, and what is done at an overrun.
type unsound struct {
	name     string
	test     func(core rt.Core, servers []rt.Server) bool
	reaction sim.Reaction
	wake     sim.Wake
	patterns []sim.Pattern
	limited  bool
	// fixed changes the rule to one under which the same set keeps all budgets, if there is one.
	fixed func(*sim.Config)
}

var unsounds = []unsound{
	{name: "low budgets fit, raise now", test: lowFits, reaction: sim.Raise, patterns: sim.Sporadic},
	{name: "each mode fits, raise now, Low kept", test: modesFit, reaction: sim.Raise, patterns: sim.Sporadic},
	{name: "each mode fits, raise now, Low squeezed at its next period", test: modesFit, reaction: sim.SqueezeNext, patterns: sim.Sporadic},
	{name: "each mode fits, raise now, Low squeezed now", test: modesFit, reaction: sim.SqueezeNow, patterns: sim.Sporadic},
	{
		name: "T1k, window free at the holder's deadline", test: t1kOnly, reaction: sim.WindowNaive, patterns: sim.Sporadic, limited: true,
		fixed: func(c *sim.Config) { c.Reaction = sim.Window },
	},
	{
		name: "T1, wake-up rule of the low budget and full raises", test: t1, reaction: sim.Raise, wake: sim.WakeUnscaled, patterns: sim.Any,
		fixed: func(c *sim.Config) { c.Wake = sim.WakeScaled },
	},
	{
		name: "plan, room that is free now used by periods released before", test: squeezable, reaction: sim.AccountNaive, patterns: sim.Sporadic,
		fixed: func(c *sim.Config) { c.Reaction = sim.Account },
	},
}

func lowFits(core rt.Core, servers []rt.Server) bool { return rt.T1(core, lowOnly(servers)).Admitted }

// modesFit: before an overrun the low budgets, after it the raised and the squeezed ones.
func modesFit(core rt.Core, servers []rt.Server) bool {
	after := append([]rt.Server(nil), servers...)
	for i, s := range after {
		if floor := s.Floor(core.Granularity); !s.MayEscalate() {
			after[i].Low, after[i].High = floor, floor
		}
	}
	return lowFits(core, servers) && rt.T1(core, after).Admitted
}

func t1(core rt.Core, servers []rt.Server) bool { return rt.T1(core, servers).Admitted }

// t1kOnly: no weaker test explains it when such a set keeps its budgets.
func t1kOnly(core rt.Core, servers []rt.Server) bool {
	return rt.T1k(1, core, servers).Admitted && !rt.T1(core, servers).Admitted
}

// squeezable: low budgets fit, but raises need squeezes.
func squeezable(core rt.Core, servers []rt.Server) bool {
	return lowFits(core, servers) && !rt.T1(core, servers).Admitted
}

// set draws servers as the survey's simulation did: 3 to 6 of them, low budgets that fill most of the core.
func set(r *rand.Rand, limited bool) []rt.Server {
	n := 3 + r.IntN(4)
	servers := make([]rt.Server, 0, n)
	for i := range n {
		period := periods[r.IntN(len(periods))]
		low := period * (30 + r.Int64N(max(1, 1000/int64(n)))) / 1000
		high := min(low*(120+r.Int64N(100))/100, period*rt.MaxBudgetPercent/100)
		s := rt.Server{ID: fmt.Sprintf("s%d", i), Criticality: rt.Criticality(r.IntN(3)), Period: period, Low: low, High: max(low, high)}
		s.Limited = limited && s.Criticality != rt.Low
		servers = append(servers, s)
	}
	return servers
}

func (u unsound) config(r *rand.Rand, core rt.Core, servers []rt.Server) sim.Config {
	return sim.Config{
		Core: core, Servers: servers, Reaction: u.reaction, Wake: u.wake, Windows: 1,
		Plan: rt.PlanCore(core, servers), Horizon: horizon, Next: sim.Workload(r, servers, horizon/2, u.patterns...),
	}
}

// find searches for a set that passes the test and breaks a promise to a container, seed by seed.
func (u unsound) find(core rt.Core, seeds uint64) (sets int, found *sim.Config, seed uint64, result sim.Result) {
	for seed := range seeds {
		servers := set(rand.New(rand.NewPCG(seed, 0)), u.limited)
		if !u.test(core, servers) {
			continue
		}
		sets++
		c := u.config(rand.New(rand.NewPCG(seed, 1)), core, servers)
		result := sim.Run(c)
		result.Breaks = slices.DeleteFunc(result.Breaks, func(b sim.Break) bool { return b.Server == sim.Host })
		if len(result.Breaks) > 0 {
			return sets, &c, seed, result
		}
	}
	return sets, nil, 0, sim.Result{}
}

// Every unsound rule is caught with a concrete counter-example; the rule that mends it keeps the same set.
func TestUnsoundRulesAreCaught(t *testing.T) {
	for _, u := range unsounds {
		t.Run(u.name, func(t *testing.T) {
			core := rt.Core{Sibling: rt.NoSibling, Capacity: rt.MaxCapacity}
			sets, c, seed, result := u.find(core, 100_000)
			if c == nil {
				t.Fatalf("no counter-example in %d sets", sets)
			}
			t.Logf("set %d, seed %d: %+v\nservers %+v", sets, seed, result.Breaks[0], c.Servers)
			if u.fixed == nil {
				return
			}
			mended := u.config(rand.New(rand.NewPCG(seed, 1)), core, c.Servers)
			c = &mended
			u.fixed(c)
			if again := sim.Run(*c); len(again.Breaks) > 0 {
				t.Errorf("the mended rule breaks too: %+v", again.Breaks[0])
			}
		})
	}
}

// The kernel's wake-up rule does not know how late it notices the end of a budget. A server that wakes
// up shortly before its deadline with just the budget that the rule allows takes the granularity on
// top, in less than a period. Random sets hardly ever show it; this one does, and what is missing is
// less than the granularity.
func TestWakeUpRuleKnowsNoGranularity(t *testing.T) {
	core := rt.Core{Sibling: rt.NoSibling, Capacity: rt.MaxCapacity, Granularity: 100}
	servers := []rt.Server{
		{ID: "sleeper", Period: 10_000, Low: 1_000, High: 1_000},
		{ID: "busy", Period: 1_000, Low: 690, High: 690},
	}
	if v := rt.T1(core, servers); !v.Admitted || v.Free() != 0 {
		t.Fatalf("%v", v)
	}
	jobs := [][]sim.Job{{{At: 0, Work: 900}, {At: 9_000, Work: 10_000}}, {{At: 0, Work: 100_000}}}
	run := func(wake sim.Wake) sim.Result {
		next := []int{0, 0}
		return sim.Run(sim.Config{
			Core: core, Servers: servers, Wake: wake, Horizon: 20_000, Late: func() int64 { return core.Granularity },
			Next: func(server int) sim.Job {
				i := next[server]
				next[server]++
				if i < len(jobs[server]) {
					return jobs[server][i]
				}
				return sim.Job{At: 1 << 40}
			},
		})
	}
	if sound := run(sim.WakeScaled); len(sound.Breaks) > 0 {
		t.Errorf("the rule with granularity breaks: %+v", sound.Breaks)
	}
	kernels := run(sim.WakeLate)
	if len(kernels.Breaks) == 0 || kernels.Breaks[0].Promised-kernels.Breaks[0].Got >= core.Granularity {
		t.Errorf("the kernel's rule: %+v", kernels.Breaks)
	}
}
