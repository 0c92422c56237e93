package forecast

import "math"

// model predicts what follows on a history.
type model interface {
	next(history []float64, hours int) []float64
}

// repeat repeats the last hours.
type repeat struct{ lag int }

func (r repeat) next(history []float64, hours int) []float64 {
	out := make([]float64, hours)
	for i := range out {
		out[i] = lastKnown(history, len(history)-r.lag+i%r.lag, r.lag)
	}
	return out
}

// lastKnown is the value at an index, else that of a season before, and so on; where there is none, the mean.
func lastKnown(history []float64, at, season int) float64 {
	for ; at >= 0; at -= season {
		if at < len(history) && !math.IsNaN(history[at]) {
			return history[at]
		}
	}
	return mean(history)
}

// mean of what is known; 0 of nothing.
func mean(values []float64) float64 {
	sum, n := 0.0, 0
	for _, x := range values {
		if !math.IsNaN(x) {
			sum, n = sum+x, n+1
		}
	}
	return sum / float64(max(1, n))
}

// smoothing is the additive method of Holt and Winters with a season of a day. The parameters are from 0 to 1.
type smoothing struct {
	level, trend, season float64
}

// damping of the trend from one hour to the next.
const damping = 0.9

// fit takes the parameters that predicted each hour of a history best from the ones before.
func fit(history []float64) smoothing {
	best, least := smoothing{}, math.Inf(1)
	for _, level := range []float64{0.05, 0.2, 0.5} {
		for _, trend := range []float64{0, 0.1} {
			for _, season := range []float64{0.05, 0.2, 0.5} {
				s := smoothing{level, trend, season}
				if e := s.run(history).squares; e < least {
					best, least = s, e
				}
			}
		}
	}
	return best
}

// smoothed is what has been learnt from a history.
type smoothed struct {
	level, trend float64
	seasons      [day]float64 // by the hour of the history
	squares      float64      // sum of the squared errors of one hour ahead
}

// run learns from a history of at least a day. An hour that is not known is taken as expected.
func (s smoothing) run(history []float64) smoothed {
	out := smoothed{level: mean(history[:day])}
	for i := range day {
		if !math.IsNaN(history[i]) {
			out.seasons[i] = history[i] - out.level
		}
	}
	for i, x := range history[day:] {
		season := &out.seasons[(day+i)%day]
		expected := out.level + damping*out.trend + *season
		if math.IsNaN(x) {
			x = expected
		}
		out.squares += (x - expected) * (x - expected)
		before := out.level
		out.level = s.level*(x-*season) + (1-s.level)*(before+damping*out.trend)
		out.trend = s.trend*(out.level-before) + (1-s.trend)*damping*out.trend
		*season = s.season*(x-out.level) + (1-s.season)**season
	}
	return out
}

func (s smoothing) next(history []float64, hours int) []float64 {
	learnt := s.run(history)
	out := make([]float64, hours)
	rise, factor := 0.0, 1.0
	for i := range out {
		factor *= damping
		rise += factor * learnt.trend
		out[i] = learnt.level + rise + learnt.seasons[(len(history)+i)%day]
	}
	return out
}
