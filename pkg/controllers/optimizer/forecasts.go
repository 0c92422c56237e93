package optimizer

import (
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/forecast"
)

const (
	// historyHours are kept: the second week is predicted from the first.
	historyHours = 14 * 24
	// notRead stands for an hour of which less than half was read.
	notRead = -1
	// longestForecast bounds how far a budget's end is looked for. The history may end two weeks before.
	longestForecast = (365 + 15) * 24
)

// closeHours adds the hours to the history that lie before this one. Where the clock was ahead, the hours since then are
// taken away again.
func closeHours(a *kcloudv1alpha1.Accrual, hour metav1.Time) {
	h := a.History
	if h == nil || hour.Sub(h.End.Time) > historyHours*time.Hour || h.End.Sub(hour.Time) > time.Duration(len(h.Averages))*time.Hour {
		a.History = &kcloudv1alpha1.AccrualHistory{End: hour}
		return
	}
	if ahead := int(h.End.Sub(hour.Time).Hours()); ahead > 0 {
		h.Averages, h.End = h.Averages[:len(h.Averages)-ahead], hour
	}
	for h.End.Before(&hour) {
		average := float64(notRead)
		if i := slices.IndexFunc(a.Hours, func(x kcloudv1alpha1.HourlyAverage) bool { return x.Hour.Equal(&h.End) }); i >= 0 && mostlyRead(a.Hours[i]) {
			average = round(a.Hours[i].Average, 6)
		}
		h.Averages = append(h.Averages, average)
		h.End = metav1.NewTime(h.End.Add(time.Hour))
	}
	if extra := len(h.Averages) - historyHours; extra > 0 {
		h.Averages = h.Averages[extra:]
	}
}

// mostlyRead reports whether half of an hour was read.
func mostlyRead(h kcloudv1alpha1.HourlyAverage) bool {
	return h.Seconds >= int32(time.Hour/time.Second/2)
}

// forecasts keeps the method that was chosen for each policy until its history changes. One goroutine uses it.
type forecasts map[string]chosen

type chosen struct {
	history  kcloudv1alpha1.AccrualHistory
	forecast forecast.Forecast
	known    bool
}

func (f forecasts) forget(policy string) { delete(f, policy) }

// choose returns the forecast of a policy.
func (f forecasts) choose(policy string, h *kcloudv1alpha1.AccrualHistory) chosen {
	c, ok := f[policy]
	if !ok || !c.history.End.Equal(&h.End) || !slices.Equal(c.history.Averages, h.Averages) {
		c = chosen{history: *h.DeepCopy()}
		c.forecast, c.known = forecast.New(known(h.Averages))
		f[policy] = c
	}
	return c
}

// budget is an amount, and what is spent of it. It counts until it ends.
type budget struct {
	limit *float64
	spent float64
	ends  time.Time
}

// predict says what is expected of a policy; nil while too little is known. perHour is what one unit of the averages
// adds to an amount in an hour, month what has added up in this month.
func (f forecasts) predict(policy string, a *kcloudv1alpha1.Accrual, now time.Time, perHour, month float64, budgets ...budget) *kcloudv1alpha1.Forecast {
	if a == nil || a.History == nil {
		return nil
	}
	c := f.choose(policy, a.History)
	if !c.known {
		return nil
	}
	e := expectation{from: a.History.End.Time, hours: c.forecast.Next(longestForecast), perHour: perHour}
	out := &kcloudv1alpha1.Forecast{
		Method: string(c.forecast.Method), Month: round(month+e.sum(now, endOfMonth(now)), 6), Day: round(e.sum(now, now.Add(forecast.Day*time.Hour)), 6),
		ScaledError: round(c.forecast.ScaledError, 3),
	}
	if excess, ok := c.forecast.Excess(); ok {
		upper := round(out.Day+excess*perHour, 6)
		out.DayUpper = &upper
	}
	if !math.IsNaN(c.forecast.Coverage) {
		coverage := round(c.forecast.Coverage, 3)
		out.Coverage = &coverage
	}
	for _, b := range budgets {
		if at := e.exhaustion(b, now); at != nil && (out.Exhaustion == nil || at.Before(out.Exhaustion)) {
			out.Exhaustion = at
		}
	}
	return out
}

// endOfMonth is that of the calendar month of UTC.
func endOfMonth(t time.Time) time.Time { return startOfMonth(t.UTC()).AddDate(0, 1, 0) }

// known is a history with the hours that were not read as NaN.
func known(averages []float64) []float64 {
	out := slices.Clone(averages)
	for i, x := range out {
		if x == notRead {
			out[i] = math.NaN()
		}
	}
	return out
}

// expectation is what is expected of the hours from a time on.
type expectation struct {
	from    time.Time
	hours   []float64
	perHour float64
}

// part returns how much of an hour lies between two times, in hours.
func (e expectation) part(i int, from, to time.Time) float64 {
	begins := e.from.Add(time.Duration(i) * time.Hour)
	ends := begins.Add(time.Hour)
	if begins.Before(from) {
		begins = from
	}
	if ends.After(to) {
		ends = to
	}
	return max(0, ends.Sub(begins).Hours())
}

// sum is the amount that is expected between two times.
func (e expectation) sum(from, to time.Time) float64 {
	sum := 0.0
	for i, x := range e.hours {
		sum += x * e.part(i, from, to) * e.perHour
	}
	return sum
}

// exhaustion is the hour in which a budget is expected to be spent; nil: not before it ends, or already.
func (e expectation) exhaustion(b budget, now time.Time) *metav1.Time {
	if b.limit == nil || b.spent >= *b.limit {
		return nil
	}
	spent := b.spent
	for i, x := range e.hours {
		if spent += x * e.part(i, now, b.ends) * e.perHour; spent >= *b.limit {
			t := metav1.NewTime(e.from.Add(time.Duration(i) * time.Hour).UTC())
			return &t
		}
	}
	return nil
}

// monthOfForecast is what is expected of the month; NaN while that is not known.
func monthOfForecast(f *kcloudv1alpha1.Forecast) float64 {
	if f == nil {
		return math.NaN()
	}
	return f.Month
}
