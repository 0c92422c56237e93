// Package forecast predicts hourly figures, such as what a policy's pods cost, from those of the weeks before, and
// says how well it does so on them. It computes only. New chooses the method that did best, Forecast is what it
// expects.
package forecast

import (
	"math"
	"slices"
)

// Method is how the next hours are predicted.
type Method string

// Methods.
const (
	// Naive repeats the last hour.
	Naive Method = "Naive"
	// Daily repeats the same hour of the day before.
	Daily Method = "SeasonalNaiveDay"
	// Weekly repeats the same hour of the week before.
	Weekly Method = "SeasonalNaiveWeek"
	// HoltWinters smooths level, trend and the hours of the day exponentially, with a trend that fades (Holt 1957;
	// Winters 1960; Gardner and McKenzie, Forecasting trends in time series, 1985).
	HoltWinters Method = "HoltWinters"
)

// Day is how many hours ahead each test looks, and the upper bound.
const Day = 24

const (
	day  = Day
	week = 7 * day
	// leastHours are known before anything is predicted.
	leastHours = 2 * day
	// step is how many hours lie between two tests.
	step = 3
	// leastTests are made before an upper bound is told: half of them give one, and those of the other half check it
	// that share no hour with them.
	leastTests = 3 * day / step
	// confidence of the upper bound, and the share of tests in which it has to hold.
	confidence  = 0.9
	leastCovers = 0.85
)

// Forecast is what is expected, and how good that was in the tests: the second half of the history, predicted again and
// again from what lay before.
type Forecast struct {
	Method Method
	// ScaledError is the mean absolute error of the method divided by that of Naive (Hyndman and Koehler, Another look
	// at measures of forecast accuracy, 2006). It is below 1, or the method is Naive.
	ScaledError float64
	// Coverage is the share of the later tests in which the sum stayed below the upper bound that the earlier ones
	// gave; NaN with too few tests.
	Coverage float64

	history []float64
	model   model
	excess  float64 // of the sum of a Day in nine tenths of the tests; NaN: not known
}

// New chooses a method for a history of hourly values, the last hour last, NaN where it is not known. It reports false
// where too little is known.
func New(history []float64) (Forecast, bool) {
	known := 0
	for _, x := range history {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			known++
		}
	}
	if known < leastHours {
		return Forecast{}, false
	}
	history = slices.Clone(history)
	naive := test(history, repeat{lag: 1})
	best := Forecast{Method: Naive, ScaledError: 1, history: history, model: repeat{lag: 1}}
	errors := naive.sums
	for _, c := range candidates(history) {
		t := test(history, c.model)
		if naive.meanError > 0 && t.meanError/naive.meanError < best.ScaledError {
			best.Method, best.model, best.ScaledError = c.method, c.model, t.meanError/naive.meanError
			errors = t.sums
		}
	}
	best.excess, best.Coverage = bound(errors)
	return best, true
}

type candidate struct {
	method Method
	model  model
}

// candidates are the methods beside Naive that the first half of the history is long enough for.
func candidates(history []float64) []candidate {
	first := history[:len(history)/2]
	var list []candidate
	if len(first) >= day {
		list = append(list, candidate{Daily, repeat{lag: day}})
	}
	if len(first) >= 2*day {
		list = append(list, candidate{HoltWinters, fit(first)})
	}
	if len(first) >= week {
		list = append(list, candidate{Weekly, repeat{lag: week}})
	}
	return list
}

// Next returns what is expected in the next hours, each at least 0.
func (f Forecast) Next(hours int) []float64 {
	out := f.model.next(f.history, hours)
	for i := range out {
		out[i] = max(0, out[i])
	}
	return out
}

// Excess is by how much the sum of the next Day may exceed the sum of what is expected: in nine tenths of the tests it
// did not. Nothing is said of longer times: what is missed grows faster than they do, and two weeks are too few to
// measure it. ok is false with too few tests, and where the bound of the earlier ones did not hold in the later.
func (f Forecast) Excess() (excess float64, ok bool) {
	if math.IsNaN(f.excess) || !(f.Coverage >= leastCovers) {
		return 0, false
	}
	return max(0, f.excess), true
}

// results of a test.
type results struct {
	meanError float64   // of one hour
	sums      []float64 // by how much the sum of a Day exceeded what was expected, in order of time
}

// test predicts the second half of a history, from one origin after the other.
func test(history []float64, m model) results {
	r := results{}
	total, count := 0.0, 0
	for origin := len(history) / 2; origin+Day <= len(history); origin += step {
		expected := m.next(history[:origin], Day)
		excess := 0.0
		for i, x := range expected {
			e := history[origin+i] - max(0, x)
			excess += e
			if !math.IsNaN(e) {
				total, count = total+math.Abs(e), count+1
			}
		}
		if !math.IsNaN(excess) {
			r.sums = append(r.sums, excess)
		}
	}
	r.meanError = math.Inf(1)
	if count > 0 {
		r.meanError = total / float64(count)
	}
	return r
}

// bound is the upper bound of the excess that all tests give, and in which share of the later half that of the earlier
// half held. It is what split conformal prediction does (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random
// World, 2005), whose promise needs errors that could come in any order. Those of days in a row could not: hence the check.
func bound(sums []float64) (excess, coverage float64) {
	if len(sums) < leastTests {
		return math.NaN(), math.NaN()
	}
	half := len(sums) / 2
	limit, held := quantile(sums[:half]), 0
	later := sums[half+day/step:]
	for _, s := range later {
		if s <= limit+1e-9*math.Abs(limit) {
			held++
		}
	}
	return quantile(sums), float64(held) / float64(len(later))
}

// quantile is the smallest value that at least confidence of n+1 do not exceed; the largest where n is too small for that.
func quantile(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted), int(math.Ceil(float64(len(sorted)+1)*confidence)))-1]
}
