package sim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rt/sim"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

func TestMain(m *testing.M) {
	sampling.RapidChecks(500, 2000)
	os.Exit(m.Run())
}

var periods = []int64{1000, 2000, 2500, 4000, 5000, 10000}

const horizon = 60_000

// draw is what a random set may look like.
type draw struct {
	constrained bool // deadlines shorter than periods
	limited     bool // some servers are Limited
	priorities  bool
}

func (d draw) server(t *rapid.T, i int) rt.Server {
	period := rapid.SampledFrom(periods).Draw(t, "period")
	low := period * rapid.Int64Range(20, 500).Draw(t, "low") / 1000
	high := min(low*rapid.Int64Range(100, 220).Draw(t, "high")/100, period*rt.MaxBudgetPercent/100)
	s := rt.Server{
		ID: fmt.Sprintf("s%d", i), Criticality: rt.Criticality(rapid.IntRange(0, 2).Draw(t, "criticality")),
		Period: period, Low: low, High: max(low, high),
	}
	if d.constrained && rapid.Bool().Draw(t, "constrained") {
		s.Deadline = rapid.Int64Range(s.High, period).Draw(t, "deadline")
	}
	if d.limited {
		s.Limited = rapid.Bool().Draw(t, "limited")
	}
	if d.priorities {
		s.Priority = rapid.IntRange(1, 9).Draw(t, "priority")
	}
	return s
}

// admitted draws servers one by one and keeps those with which the set holds; where bandwidth is all
// that counts, a last one takes what is left, so that there is no slack.
func (d draw) admitted(t *rapid.T, core rt.Core, holds func([]rt.Server) bool) []rt.Server {
	var servers []rt.Server
	for i := range rapid.IntRange(2, 7).Draw(t, "servers") {
		if with := append(servers[:len(servers):len(servers)], d.server(t, i)); holds(with) {
			servers = with
		}
	}
	return d.filled(t, core, servers, holds)
}

func (d draw) filled(t *rapid.T, core rt.Core, servers []rt.Server, holds func([]rt.Server) bool) []rt.Server {
	filler := d.server(t, len(servers))
	filler.ID, filler.Criticality, filler.Limited, filler.Deadline = "filler", rt.Low, false, 0
	lo, hi := int64(0), filler.Period*rt.MaxBudgetPercent/100
	for lo < hi { // the largest budget with which the set holds
		filler.Low = (lo + hi + 1) / 2
		filler.High = filler.Low
		if holds(append(servers[:len(servers):len(servers)], filler)) {
			lo = filler.Low
		} else {
			hi = filler.Low - 1
		}
	}
	if lo == 0 {
		return servers
	}
	filler.Low, filler.High = lo, lo
	return append(servers, filler)
}

func drawCore(t *rapid.T, policy rt.Policy) rt.Core {
	return rt.Core{
		Sibling: rt.NoSibling, Policy: policy,
		Capacity:    rt.PPM(rapid.SampledFrom([]int64{1_000_000, 900_000, 650_000}).Draw(t, "capacity")),
		Granularity: rapid.SampledFrom([]int64{0, 0, 20, 100}).Draw(t, "granularity"),
	}
}

// experiment is a Config with drawn workload and lateness; one seed makes all of it.
func experiment(t *rapid.T, core rt.Core, servers []rt.Server) sim.Config {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	c := sim.Config{Core: core, Servers: servers, Horizon: horizon, Next: sim.Workload(r, servers, horizon/2, sim.Any...)}
	if rapid.Bool().Draw(t, "always") {
		c.Next = sim.Workload(r, servers, horizon, sim.Always)
	}
	if core.Granularity > 0 {
		c.Late = sim.Lateness(r, core.Granularity)
	}
	for range servers {
		c.Phases = append(c.Phases, r.Int64N(10_000)*r.Int64N(2))
	}
	return c
}

func mustKeep(t *rapid.T, c sim.Config) sim.Result {
	result := sim.Run(c)
	if len(result.Breaks) > 0 {
		t.Fatalf("%d promises broken, the first: %+v\ncore %+v\nservers %+v", len(result.Breaks), result.Breaks[0], c.Core, c.Servers)
	}
	return result
}

func random(t *rapid.T) *rand.Rand {
	return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "workload"), 1))
}
