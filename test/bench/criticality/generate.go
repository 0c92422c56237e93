package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/test/bench/joblog"
)

// The mix of each core: MC-Kube's 16 High, 24 Middle and 32 Low, scaled to nine tasks.
var mix = []rt.Criticality{rt.High, rt.High, rt.Middle, rt.Middle, rt.Middle, rt.Low, rt.Low, rt.Low, rt.Low}

// Budgets and jobs, in microseconds.
const (
	// marginUs is what a job leaves of its budget: entering the kernel, interrupts and the account's
	// own error are charged to the task, too.
	marginUs = 150
	// leastLowUs is the smallest low budget, leastStepUs the smallest raise.
	leastLowUs  = 400
	leastStepUs = 300
	// overrun is the probability that a High or Middle job needs more than its low budget.
	overrun = 0.05
)

// Periods of the sets, in microseconds. Eight tasks have the short one, the task that needs most has the long one.
// The analysis of fixed priorities has every server run up to twice in a row (it may use its budget at the end of one
// period and at the beginning of the next): of servers with one period it admits half a core. A heavy
// server with a much longer period hardly feels that, so such sets come close to the whole core.
const (
	shortUs = 20_000
	longUs  = 200_000
)

// kind is how sets are drawn.
type kind struct {
	name string
	draw func(r *rand.Rand, total float64) []rt.Server // of a total; nil: the draw is of no use
	// squeezes: high budgets do not all fit, Low servers give way while somebody is raised. Overruns come in bursts then,
	// so that there are calm times in which they get their budgets back.
	squeezes bool
	// Totals by high budgets, of the core, that are tried, from the largest on.
	most, least float64
}

// Name of the set that squeezes.
const squeeze = "squeeze"

var kinds = []kind{
	{name: "randfixedsum", draw: drawFixedSum, most: 0.90, least: 0.75},
	{name: "waters", draw: newGarage().draw, most: 0.90, least: 0.75},
	{name: squeeze, draw: drawFull, squeezes: true, most: 0.95, least: 0.90},
}

// named are the kinds of a list of names; all for none.
func named(list string) []kind {
	var out []kind
	for _, k := range kinds {
		if list == "" || slices.Contains(strings.Split(list, ","), k.name) {
			out = append(out, k)
		}
	}
	return out
}

func kindNames() []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.name)
	}
	return out
}

// Shares of a core that one server with the short period may have, and all eight together.
const (
	leastShare, mostShare = 0.02, 0.15
	leastShort, mostShort = 0.28, 0.45
)

// drawFixedSum draws the shares of the eight uniformly among all with their sum.
func drawFixedSum(r *rand.Rand, total float64) []rt.Server {
	return mixed(r, total, heavyOf(r), sharesOf(r, len(mix)-1, between(r, leastShort, mostShort), leastShare, mostShare))
}

// drawFull draws a set in which a Low server is the heavy one: its floor makes room for the others' raises.
func drawFull(r *rand.Rand, total float64) []rt.Server {
	escalating := sharesOf(r, 5, between(r, 0.20, 0.32), 0.035, 0.10)
	low := sharesOf(r, 3, between(r, 0.07, 0.14), leastShare, 0.06)
	return mixed(r, total, len(mix)-1, slices.Concat(escalating, low))
}

// heavyOf draws who of the mix has the long period: a Middle or Low one, so that High ones have many jobs.
func heavyOf(r *rand.Rand) int { return 2 + r.IntN(len(mix)-2) }

func between(r *rand.Rand, from, to float64) float64 { return from + (to-from)*r.Float64() }

// budgets of a server, in parts of its period.
type budgets struct{ low, high float64 }

// sharesOf are n with a sum, uniform among all such with shares between least and most.
func sharesOf(r *rand.Rand, n int, sum, least, most float64) []budgets {
	out := make([]budgets, 0, n)
	for _, high := range randFixedSum(r, n, sum, least, most) {
		out = append(out, budgets{high * between(r, 0.5, 0.8), high})
	}
	return out
}

// mixed puts a set together from the budgets of eight: the heavy server has the rest of the total.
func mixed(r *rand.Rand, total float64, heavy int, eight []budgets) []rt.Server {
	rest := total
	for _, b := range eight {
		rest -= b.high
	}
	return together(slices.Insert(slices.Clone(eight), heavy, budgets{rest * between(r, 0.5, 0.8), rest}), heavy)
}

// together gives the budgets to the mix; nil when one is of no use.
func together(all []budgets, heavy int) []rt.Server {
	out := make([]rt.Server, len(mix))
	for i, c := range mix {
		period := int64(shortUs)
		if i == heavy {
			period = longUs
		}
		out[i] = server(i, c, period, all[i].low*float64(period), all[i].high*float64(period))
		if !usable(out[i]) {
			return nil
		}
	}
	return out
}

// server of the mix. Low servers have one budget: what others escalate to.
func server(i int, c rt.Criticality, period int64, low, high float64) rt.Server {
	s := rt.Server{ID: fmt.Sprintf("%s-%d", []string{"low", "middle", "high"}[c], i), Criticality: c, Period: period, Low: int64(low), High: int64(high)}
	if c == rt.Low {
		s.Low = s.High
	}
	return s
}

// usable says whether every job fits into its budget with the margin.
func usable(s rt.Server) bool {
	return s.Low >= leastLowUs && (s.Criticality == rt.Low || s.High-s.Low >= leastStepUs) && s.Validate() == nil
}

// heaviest is the index of the server with the long period.
func heaviest(servers []rt.Server) int {
	for i, s := range servers {
		if s.Period == longUs {
			return i
		}
	}
	return 0
}

// Bursts of overruns in sets that squeeze: how long, how often, and how many jobs overrun in one.
const (
	burstUs      = 200_000
	burstEveryUs = 10_000_000
	burstOverrun = 0.3
)

// demand is what the jobs of a server need, in nanoseconds: ordinary ones up to the low budget less the margin, those
// that overrun from there to the high one.
func (s set) demand(server rt.Server) joblog.Demand {
	most := (server.Low - marginUs) * 1000
	d := joblog.Demand{Least: most * 7 / 10, Most: most}
	if s.kind.squeezes {
		// Low work can catch up once it has its budget again.
		d.Least, d.Most = most*6/10, most*3/4
	}
	if !server.MayEscalate() {
		return d
	}
	d.Probability, d.OverrunLeast, d.OverrunTo = overrun, (server.Low+marginUs)*1000, (server.High-marginUs)*1000
	if s.kind.squeezes {
		// Two jobs fit into one window: what is no overrun does not look like one, and calm times are calm.
		d.Least, d.Most = most*3/10, most*9/20
		d.Probability = burstOverrun
		d.Burst, d.BurstEvery = int(max(1, burstUs/server.Period)), int(burstEveryUs/server.Period)
	}
	return d
}
