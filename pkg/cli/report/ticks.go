package report

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
)

// wantedTicks is about how many labels an axis gets.
const wantedTicks = 6

// timeSteps are the distances between labels that read well, in seconds.
var timeSteps = []float64{
	1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 4 * 3600, 6 * 3600, 12 * 3600,
	86400, 2 * 86400, 5 * 86400, 10 * 86400, 20 * 86400, 50 * 86400, 100 * 86400, 365 * 86400, 3650 * 86400,
}

// timeTicks labels seconds as a clock or, over days, as days.
type timeTicks struct{}

// Ticks implements plot.Ticker.
func (timeTicks) Ticks(low, high float64) []plot.Tick {
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if (high-low)/s <= wantedTicks+1 {
			step = s
			break
		}
	}
	return every(step, low, high, func(v float64) string { return clockLabel(v, step) })
}

func clockLabel(seconds, step float64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case step >= 86400:
		return fmt.Sprintf("day %d", int(d.Hours()/24))
	case step >= 3600:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
	}
}

// valueTicks labels values with 1, 2 or 5 times a power of ten between them.
type valueTicks struct{}

// Ticks implements plot.Ticker.
func (valueTicks) Ticks(low, high float64) []plot.Tick {
	power := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	step := power
	for _, m := range []float64{1, 2, 5, 10} {
		step = m * power
		if (high-low)/step <= 5 {
			break
		}
	}
	return every(step, low, high, func(v float64) string {
		return strconv.FormatFloat(math.Round(v/step)*step+0, 'g', 6, 64)
	})
}

func every(step, low, high float64, label func(float64) string) []plot.Tick {
	var ticks []plot.Tick
	for i := math.Ceil(low/step-1e-9) + 0; i*step <= high*(1+1e-9); i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: label(i * step)})
	}
	return ticks
}
