package sim

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// runnables is what Kramer, Ziegenbein and Hamann measured of the runnables of one period in engine control
// software: "Real world automotive benchmarks for free", WATERS 2015, tables III (share), IV (average
// execution times, microseconds) and V (factors from there to best and worst cases).
type runnables struct {
	periodMs, percent   int
	least, average, top float64
	bestMin, bestMax    float64
	worstMin, worstMax  float64
}

// waters has no row for the angle-synchronous runnables, 15 %: their period depends on the engine's speed.
var waters = []runnables{
	{1, 3, 0.34, 5.00, 30.11, 0.19, 0.92, 1.30, 29.11},
	{2, 2, 0.32, 4.20, 40.69, 0.12, 0.89, 1.54, 19.04},
	{5, 2, 0.36, 11.04, 83.38, 0.17, 0.94, 1.13, 18.44},
	{10, 25, 0.21, 10.09, 309.87, 0.05, 0.99, 1.06, 30.03},
	{20, 25, 0.25, 8.74, 291.42, 0.11, 0.98, 1.06, 15.61},
	{50, 3, 0.29, 17.56, 92.98, 0.32, 0.95, 1.13, 7.76},
	{100, 20, 0.21, 10.53, 420.43, 0.09, 0.99, 1.02, 8.88},
	{200, 1, 0.22, 2.56, 21.95, 0.45, 0.98, 1.03, 4.90},
	{1000, 4, 0.37, 0.43, 0.46, 0.68, 0.80, 1.84, 4.75},
}

// weibullShape is that of all execution times here. The paper finds Weibull distributions, and gives
// bounds and means.
const weibullShape = 2

// Automotive is a container with runnables of one period, and how long each of its jobs takes.
type Automotive struct {
	rt.Server
	best, worst, average float64
}

// NewAutomotive draws a container of 50 to 500 runnables of one period. Its low budget is a fifth above the
// average of its jobs; its high budget has a random tenth of the runnables at their worst case.
func NewAutomotive(r *rand.Rand, id string) Automotive {
	class := pickClass(r)
	a := Automotive{Server: rt.Server{ID: id, Criticality: rt.Criticality(r.IntN(3)), Period: int64(class.periodMs) * 1000}}
	high := 0.0
	for range 50 + r.IntN(451) {
		average := weibull(r, class.least, class.average, class.top)
		worst := average * uniform(r, class.worstMin, class.worstMax)
		a.average += average
		a.best += average * uniform(r, class.bestMin, class.bestMax)
		a.worst += worst
		if high += average; r.IntN(10) == 0 {
			high += worst - average
		}
	}
	most := a.Period * rt.MaxBudgetPercent / 100
	a.Low = min(int64(math.Ceil(1.2*a.average)), most)
	a.High = min(max(int64(math.Ceil(high)), a.Low), most)
	return a
}

// NewAutomotives draws n containers.
func NewAutomotives(r *rand.Rand, n int) []Automotive {
	out := make([]Automotive, 0, n)
	for i := range n {
		out = append(out, NewAutomotive(r, fmt.Sprintf("a%d", i)))
	}
	return out
}

// AutomotiveWorkload releases a job of each container in every period; its time is between the sums of the
// runnables' best and worst cases.
func AutomotiveWorkload(r *rand.Rand, containers []Automotive) func(int) Job {
	at := make([]int64, len(containers))
	return func(i int) Job {
		c := containers[i]
		job := Job{At: at[i], Work: int64(math.Ceil(weibull(r, c.best, c.average, c.worst)))}
		at[i] += c.Period
		return job
	}
}

// pickClass draws a period by its share of the runnables.
func pickClass(r *rand.Rand) runnables {
	total := 0
	for _, c := range waters {
		total += c.percent
	}
	n := r.IntN(total)
	for _, c := range waters {
		if n -= c.percent; n < 0 {
			return c
		}
	}
	return waters[len(waters)-1]
}

// weibull draws from a Weibull distribution of the mean that begins at least, cut off at most.
func weibull(r *rand.Rand, least, mean, most float64) float64 {
	scale := (mean - least) / math.Gamma(1+1.0/weibullShape)
	return min(most, least+scale*math.Pow(-math.Log(1-r.Float64()), 1.0/weibullShape))
}

func uniform(r *rand.Rand, from, to float64) float64 { return from + (to-from)*r.Float64() }
