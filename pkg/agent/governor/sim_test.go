package governor_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rt/sim"
)

// driver lets the governor decide in the simulator of package rt, which knows what the kernel does.
type driver struct {
	core    *governor.Core
	servers []rt.Server
	specs   []governor.Server
	plan    table.Plan
	budgets []int64
	started []int64 // release of the last period
	woke    []int64
	clean   []int
	refuse  func() bool
	count   map[string]int
}

func (d *driver) Set(slot int, budgetUs int64) error {
	if d.refuse() {
		return errBusy
	}
	if before := d.budgets[slot]; budgetUs < before && before <= d.servers[slot].Low {
		d.count["squeezed"]++
	} else if budgetUs <= d.servers[slot].Low {
		d.count["given back"]++
	}
	d.budgets[slot] = budgetUs
	return nil
}

func (d *driver) Budget(server int) int64 { return d.budgets[server] }

// ns is a time of the simulator for the governor.
func ns(us int64) int64 { return start + us*1000 }

func (d *driver) Started(i int, used, now int64) {
	d.started[i], d.woke[i] = now, now
	d.core.Tick(ns(now), d)
	if used*100 > d.servers[i].Low*95 {
		d.clean[i] = 0
		return
	}
	if d.clean[i]++; d.clean[i] >= 3 {
		d.count[d.core.Clean(i, ns(now), d).Kind.String()]++
	}
}

func (d *driver) Woke(i int, now int64) { d.woke[i] = now }

func (d *driver) Exhausted(i int, release, now int64) {
	d.count[d.core.Alarm(i, ns(release), ns(now), d).Kind.String()]++
}

// govern is an experiment with a governor for these servers, by the plan of package rt.
func govern(c sim.Config, o governor.Options, servers []rt.Server) (sim.Config, *driver) {
	d := &driver{
		servers: servers, budgets: make([]int64, len(servers)), started: make([]int64, len(servers)), woke: make([]int64, len(servers)),
		clean: make([]int, len(servers)), refuse: func() bool { return false }, count: map[string]int{},
	}
	plan := rt.PlanCore(c.Core, servers)
	out := table.Plan{Core: c.Core.ID, ThresholdPpm: int64(plan.Threshold), MaxRaised: plan.Windows}
	raise := map[string]int64{}
	for _, r := range plan.Raise {
		raise[r.ID] = r.ToUs
	}
	for _, q := range plan.Squeeze {
		out.Squeeze = append(out.Squeeze, table.Squeeze{ID: q.ID, FloorUs: q.FloorUs})
	}
	for i, s := range servers {
		spec := governor.Server{Slot: i, RaiseToUs: raise[s.ID]}
		spec.Server = table.Server{
			ID: s.ID, Cgroup: "/" + s.ID, Criticality: s.Criticality.String(), PeriodUs: s.Period, DeadlineUs: s.Window(),
			LowUs: s.Low, HighUs: s.High, LeastUs: s.Low, Core: c.Core.ID, Mode: table.Elastic, Limited: s.Limited,
			Overruns: 1, Periods: 1, DwellUs: 1,
		}
		d.specs = append(d.specs, spec)
	}
	d.plan = out
	o.GranularityUs = c.Core.Granularity
	o.Capacity = c.Core.Capacity + c.Core.EscalationReserve
	o.Woke = func(slot int) int64 { return ns(d.woke[slot]) }
	d.core = governor.New(o)
	d.core.Load(d.specs, d.plan, ns(0), d)
	c.Servers, c.Reaction, c.Agent = servers, sim.Asked, d
	return c, d
}

var simPeriods = []int64{1000, 2000, 2500, 4000, 5000, 10_000}

func drawSimServer(t *rapid.T, i int, sound bool) rt.Server {
	period := rapid.SampledFrom(simPeriods).Draw(t, "period")
	low := period * rapid.Int64Range(20, 500).Draw(t, "low") / 1000
	high := max(low, min(low*rapid.Int64Range(100, 220).Draw(t, "high")/100, period*rt.MaxBudgetPercent/100))
	s := rt.Server{
		ID: fmt.Sprint("s", i), Criticality: rt.Criticality(rapid.IntRange(0, 2).Draw(t, "criticality")), Period: period, Low: low, High: high,
		Limited: !sound && rapid.Bool().Draw(t, "limited"),
	}
	if rapid.Bool().Draw(t, "constrained") {
		s.Deadline = rapid.Int64Range(high, period).Draw(t, "deadline")
	}
	return s
}

// drawSet draws servers for which a test holds, and a last one that takes what is left of the core.
func drawSet(t *rapid.T, holds func([]rt.Server) bool) []rt.Server {
	var servers []rt.Server
	for i := range rapid.IntRange(2, 7).Draw(t, "servers") {
		if with := append(servers[:len(servers):len(servers)], drawSimServer(t, i, false)); holds(with) {
			servers = with
		}
	}
	filler := rt.Server{ID: "filler", Period: rapid.SampledFrom(simPeriods).Draw(t, "filler")}
	filled := servers
	for lo, hi := int64(1), filler.Period*rt.MaxBudgetPercent/100; lo <= hi; {
		filler.Low = (lo + hi) / 2
		filler.High = filler.Low
		if with := append(servers[:len(servers):len(servers)], filler); holds(with) {
			filled, lo = with, filler.Low+1
		} else {
			hi = filler.Low - 1
		}
	}
	return filled
}

func drawExperiment(t *rapid.T, reserve bool) sim.Config {
	c := sim.Config{Horizon: 60_000, Wake: sim.WakeUnscaled}
	c.Core = rt.Core{
		Sibling: rt.NoSibling, Capacity: rt.PPM(rapid.SampledFrom([]int64{1_000_000, 900_000, 650_000}).Draw(t, "capacity")),
		Granularity: rapid.SampledFrom([]int64{0, 0, 20, 100}).Draw(t, "granularity"),
	}
	if reserve {
		c.Core.EscalationReserve = rt.PPM(rapid.Int64Range(0, 300_000).Draw(t, "reserve"))
		c.Core.Capacity -= c.Core.EscalationReserve
	}
	return c
}

func loaded(t *rapid.T, c sim.Config, servers []rt.Server, patterns ...sim.Pattern) (sim.Config, *rand.Rand) {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	c.Next = sim.Workload(r, servers, c.Horizon/2, patterns...)
	if c.Core.Granularity > 0 {
		c.Late = sim.Lateness(r, c.Core.Granularity)
	}
	return c, r
}

// Whichever server overruns and whenever: where the plan holds the governor's raises and squeezes break no promised
// budget.
func TestNoPromisedBudgetIsBroken(t *testing.T) {
	count := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		c := drawExperiment(t, true)
		servers := drawSet(t, func(s []rt.Server) bool { return rt.Holds(c.Core, s).Admitted })
		keeps(t, c, servers, count)
	})
	mustHappen(t, count, "Raised", "Denied", "Partial", "Recovered", "given back", "Refused")
}

// A core that is too full: only low budgets fit, and every raise waits for squeezes.
func TestOvercommittedCoresKeepTheirPromises(t *testing.T) {
	count := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		c := drawExperiment(t, false)
		servers := drawSet(t, func(s []rt.Server) bool {
			low := append([]rt.Server(nil), s...)
			for i := range low {
				low[i].High = low[i].Low
			}
			return rt.Holds(c.Core, low).Admitted
		})
		keeps(t, c, servers, count)
	})
	mustHappen(t, count, "Raised", "Denied", "Partial", "Recovered", "squeezed", "given back", "Refused")
}

func keeps(t *rapid.T, c sim.Config, servers []rt.Server, count map[string]int) {
	c, r := loaded(t, c, servers, sim.Any...)
	c, d := govern(c, governor.Options{EDF: true}, servers)
	d.count = count
	if rapid.Bool().Draw(t, "refuses") {
		d.refuse = func() bool { return r.IntN(5) == 0 }
	}
	limit := min(rt.OneCore, c.Core.Capacity+c.Core.EscalationReserve)
	result := sim.Run(c)
	if len(result.Breaks) > 0 || d.core.Broken() > 0 || result.MostPromised > limit {
		t.Fatalf("%d promises broken, the first %+v; %d of %d ppm promised; broken %d\ncore %+v\nservers %+v",
			len(result.Breaks), append(result.Breaks, sim.Break{})[0], result.MostPromised, limit, d.core.Broken(), c.Core, servers)
	}
}

func mustHappen(t *testing.T, count map[string]int, kinds ...string) {
	t.Helper()
	t.Log(count)
	for _, kind := range kinds {
		if count[kind] == 0 {
			t.Errorf("%s never happened", kind)
		}
	}
}

// The sets for which the naive rule ("the window is free when its holder's deadline is over") breaks a promise are
// kept by the governor.
func TestTheNaiveWindowsCounterExamplesAreKept(t *testing.T) {
	naive, happened := 0, map[string]int{}
	r := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		c, servers := limitedSet(r)
		seed := r.Uint64()
		load := func(c sim.Config) sim.Config {
			again := rand.New(rand.NewPCG(seed, 0))
			c.Next = sim.Workload(again, servers, c.Horizon/2, sim.Sporadic...)
			return c
		}
		c.Servers, c.Reaction, c.Windows = servers, sim.WindowNaive, rt.Windows
		if len(sim.Run(load(c)).Breaks) == 0 {
			continue
		}
		naive++
		governed, d := govern(c, governor.Options{EDF: true}, servers)
		d.count = happened
		if result := sim.Run(load(governed)); len(result.Breaks) > 0 {
			t.Fatalf("the governor breaks %+v\nservers %+v", result.Breaks[0], servers)
		}
	}
	if naive == 0 {
		t.Error("the naive rule broke nothing: the test shows nothing")
	}
	t.Log(naive, "sets")
	mustHappen(t, happened, "Raised", "Denied")
}

// limitedSet fills a core, under T1k, with servers that are raised one at a time.
func limitedSet(r *rand.Rand) (sim.Config, []rt.Server) {
	c := sim.Config{Horizon: 60_000, Core: rt.Core{Sibling: rt.NoSibling, Capacity: 700_000, EscalationReserve: 300_000}}
	var servers []rt.Server
	for i := range 2 + r.IntN(5) {
		period := simPeriods[r.IntN(len(simPeriods))]
		low := period * (20 + r.Int64N(480)) / 1000
		s := rt.Server{
			ID: fmt.Sprint("s", i), Criticality: rt.High, Period: period, Low: low, High: min(low*(100+r.Int64N(120))/100, period*9/10), Limited: true,
		}
		if with := append(servers, s); rt.Holds(c.Core, with).Admitted {
			servers = with
		}
	}
	filler := rt.Server{ID: "filler", Period: simPeriods[r.IntN(len(simPeriods))]}
	filled := servers
	for us := int64(1); us <= filler.Period*rt.MaxBudgetPercent/100; us += filler.Period / 100 {
		filler.Low, filler.High = us, us
		if with := append(servers[:len(servers):len(servers)], filler); rt.Holds(c.Core, with).Admitted {
			filled = with
		}
	}
	return c, filled
}
