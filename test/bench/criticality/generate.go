package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rt/sim"
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
	leastLowUs  = 450
	leastStepUs = 350
	// overrun is the probability that a High or Middle job needs more than its low budget.
	overrun = 0.05
)

// kind is how sets are drawn.
type kind struct {
	name string
	draw func(r *rand.Rand, total float64) []rt.Server // nil: the draw is of no use
}

var kinds = []kind{{"randfixedsum", drawFixedSum}, {"waters", drawAutomotive}}

// Shares of a core that one server may have.
const leastShare, mostShare = 0.02, 0.4

// Periods of the sets, in microseconds: harmonic, so that rate-monotonic priorities keep every set that the
// bandwidth test T1 admits (Kuo and Mok, RTSS 1991), and short enough for a thousand jobs of the longest in half a
// minute.
var periodsUs = []int64{5_000, 10_000, 20_000}

// drawFixedSum draws nine servers whose high budgets take total of the core, uniformly among all such sets, with
// periods drawn alike from those in which the budgets are not too small.
func drawFixedSum(r *rand.Rand, total float64) []rt.Server {
	shares := randFixedSum(r, len(mix), total, leastShare, mostShare)
	out := make([]rt.Server, len(mix))
	for i, c := range mix {
		ratio := 0.5 + 0.3*r.Float64()
		var fitting []rt.Server
		for _, period := range periodsUs {
			high := shares[i] * float64(period)
			if s := server(i, c, period, high*ratio, high); usable(s) {
				fitting = append(fitting, s)
			}
		}
		if len(fitting) == 0 {
			return nil
		}
		out[i] = fitting[r.IntN(len(fitting))]
	}
	return out
}

// drawAutomotive draws nine containers of automotive runnables, and scales their budgets to the total. It draws
// nothing when one of them is too small.
func drawAutomotive(r *rand.Rand, total float64) []rt.Server {
	out := make([]rt.Server, len(mix))
	sum := 0.0
	for i, c := range mix {
		a := sim.NewAutomotive(r, "")
		for !slices.Contains(periodsUs, a.Period) {
			a = sim.NewAutomotive(r, "")
		}
		out[i] = server(i, c, a.Period, float64(a.Low), float64(a.High))
		sum += float64(out[i].High) / float64(a.Period)
	}
	for i, s := range out {
		scale := total / sum
		out[i] = server(i, s.Criticality, s.Period, float64(s.Low)*scale, float64(s.High)*scale)
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

// set is nine servers of one core, admitted.
type set struct {
	kind    string
	seed    uint64
	total   float64 // of the core, by high budgets
	drawn   int     // how many sets were drawn until this one was admitted
	verdict rt.Verdict
	servers []rt.Server
}

// Totals are tried from the largest: the issue of a search is the densest set that is admitted.
const (
	mostTotal  = 0.90
	leastTotal = 0.40
	totalStep  = 0.01
	draws      = 200
)

// densest finds the densest set that the core admits with no server squeezed, drawing a bounded number of sets for
// each total. The same seed gives the same set.
func densest(k kind, core rt.Core, seed uint64) (set, error) {
	r := rand.New(rand.NewPCG(seed, uint64(len(k.name))))
	drawn := 0
	for total := mostTotal; total > leastTotal; total -= totalStep {
		for range draws {
			drawn++
			servers := prioritised(k.draw(r, total))
			if servers == nil {
				continue
			}
			if v := rt.Holds(core, servers); v.Admitted && !rt.PlanCore(core, servers).ModeSwitch {
				return set{k.name, seed, total, drawn, v, servers}, nil
			}
		}
	}
	return set{}, fmt.Errorf("no %s set of at least %.0f %% is admitted with seed %d after %d draws", k.name, 100*leastTotal, seed, drawn)
}

// prioritised gives the servers deadline-monotonic priorities, equal ones for equal deadlines.
func prioritised(servers []rt.Server) []rt.Server {
	for i := range servers {
		servers[i].Priority = lowestPriority
		seen := map[int64]bool{}
		for _, o := range servers {
			if o.Window() > servers[i].Window() && !seen[o.Window()] {
				seen[o.Window()] = true
				servers[i].Priority++
			}
		}
	}
	return servers
}

const lowestPriority = 10

// demand is what the jobs of a server need, in nanoseconds: ordinary ones up to the low budget less the margin, those
// that overrun from there to the high one.
func demand(s rt.Server) joblog.Demand {
	most := (s.Low - marginUs) * 1000
	d := joblog.Demand{Least: most * 7 / 10, Most: most}
	if s.MayEscalate() {
		d.Probability, d.OverrunLeast, d.OverrunTo = overrun, (s.Low+marginUs)*1000, (s.High-marginUs)*1000
	}
	return d
}

// randFixedSum draws n values from least to most whose sum is total, uniformly among all such (R. Stafford,
// 2006; P. Emberson, R. Stafford, R. Davis, WATERS 2010).
func randFixedSum(r *rand.Rand, n int, total, least, most float64) []float64 {
	s := (total - float64(n)*least) / (most - least)
	s = max(0, min(s, float64(n)))
	out := unitFixedSum(r, n, s)
	for i := range out {
		out[i] = least + out[i]*(most-least)
	}
	r.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// unitFixedSum is Stafford's walk through the simplices that make up the section of the unit cube.
func unitFixedSum(r *rand.Rand, n int, s float64) []float64 {
	k := max(min(int(math.Floor(s)), n-1), 0)
	turns := simplexTurns(n, k, s)
	out := make([]float64, n)
	sum, product, column := 0.0, 1.0, k
	for i := n - 1; i >= 1; i-- {
		e := 0.0
		if r.Float64() <= turns[i-1][column] {
			e = 1
		}
		sx := math.Pow(r.Float64(), 1/float64(i))
		sum += (1 - sx) * product * s / float64(i+1)
		product *= sx
		out[n-i-1] = sum + product*e
		s -= e
		column -= int(e)
	}
	out[n-1] = sum + product*s
	return out
}

// simplexTurns are the probabilities of the walk: t[i][j] of going to the side where the value is larger.
func simplexTurns(n, k int, s float64) [][]float64 {
	s1, s2 := make([]float64, n), make([]float64, n)
	for i := range n {
		s1[i] = s - float64(k-i)
		s2[i] = float64(k+n-i) - s
	}
	weights := make([]float64, n+1)
	weights[1] = math.MaxFloat64
	turns := make([][]float64, n-1)
	for i := 2; i <= n; i++ {
		next := make([]float64, n+1)
		turns[i-2] = make([]float64, n)
		for j := range i {
			up, down := weights[j+1]*s1[j]/float64(i), weights[j]*s2[n-i+j]/float64(i)
			next[j+1] = up + down
			whole := next[j+1] + math.SmallestNonzeroFloat64
			if s2[n-i+j] > s1[j] {
				turns[i-2][j] = down / whole
			} else {
				turns[i-2][j] = 1 - up/whole
			}
		}
		weights = next
	}
	return turns
}
