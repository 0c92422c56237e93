package optimizer

import (
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
)

const (
	// longestGap is between two readings of which what lies between is measured. What accrues over a longer one is estimated from both ends.
	longestGap = 5 * time.Minute
	// longestAbsence is what is estimated at most from one process to the next: a clock that was wrong looks like a longer one.
	longestAbsence = 7 * 24 * time.Hour
)

// keptHours are averaged, beside the one that is not over.
const keptHours = 24

// amounts are what has been added up, in all and in the calendar month of the last reading. The unit is that of the rate times an hour.
type amounts struct {
	total, month float64
}

// stopwatch measures the time between two readings of a policy. Within the life of a process it is measured by the
// monotonic clock, so that a clock that is set changes nothing; from one process to the next by the time that the one
// before has written.
type stopwatch struct {
	clock clock.PassiveClock
	marks map[string]mark // by name of the policy
}

// mark is the reading that this process has written last.
type mark struct {
	until metav1.MicroTime
	at    time.Time
}

// reading is a moment at which a policy is read.
type reading struct {
	at      time.Time
	elapsed time.Duration // since the last one
	jumped  bool          // the clock was set since the last one
}

// read returns the reading of a policy at this moment.
func (w *stopwatch) read(policy string, a *kcloudv1alpha1.Accrual, now time.Time) reading {
	if a == nil {
		return reading{at: now}
	}
	gap := now.Sub(a.Until.Time)
	if m, ours := w.marks[policy]; ours && m.until.Equal(&a.Until) {
		elapsed := max(0, w.clock.Since(m.at)-w.clock.Since(now))
		return reading{at: now, elapsed: elapsed, jumped: (gap - elapsed).Abs() > longestGap}
	}
	return reading{at: now, elapsed: min(max(0, gap), longestAbsence)}
}

// mark keeps that the reading was written.
func (w *stopwatch) mark(policy string, a *kcloudv1alpha1.Accrual, at time.Time) {
	if w.marks == nil {
		w.marks = map[string]mark{}
	}
	if a != nil {
		w.marks[policy] = mark{until: a.Until, at: at}
	}
}

func (w *stopwatch) forget(policy string) { delete(w.marks, policy) }

// accrue adds what has accrued since the last reading, at the mean of the rates at both ends. Amounts and time are written together,
// so that the death of the process and a write that is refused leave both as they were.
func accrue(before *kcloudv1alpha1.Accrual, sums amounts, earlier, rate float64, r reading) (*kcloudv1alpha1.Accrual, amounts) {
	at := r.at.UTC().Truncate(time.Microsecond) // as the API server keeps it
	if before == nil {
		return &kcloudv1alpha1.Accrual{From: metav1.NewTime(at.Truncate(time.Second)), Until: metav1.NewMicroTime(at), Month: monthOf(at)}, amounts{}
	}
	a, mean := before.DeepCopy(), (earlier+rate)/2
	amount := mean * r.elapsed.Hours()
	sums.total, sums.month = sums.total+amount, sums.month+amount
	if month := monthOf(at); !r.jumped && month != a.Month {
		if month > a.Month { // else the clock was ahead
			sums.month = mean * min(r.elapsed, at.Sub(startOfMonth(at))).Hours()
		}
		a.Month = month
	}
	if r.elapsed > longestGap {
		a.Estimated += amount
	} else if !r.jumped {
		average(a, mean, at, r.elapsed)
	}
	a.Until = metav1.NewMicroTime(at)
	return a, sums
}

func monthOf(t time.Time) string { return t.Format("2006-01") }

func startOfMonth(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// average adds a rate that held for some time to the average of the hour.
func average(a *kcloudv1alpha1.Accrual, rate float64, now time.Time, held time.Duration) {
	hour, seconds := metav1.NewTime(now.Truncate(time.Hour)), int32(held.Round(time.Second)/time.Second)
	if seconds == 0 {
		return
	}
	i := slices.IndexFunc(a.Hours, func(h kcloudv1alpha1.HourlyAverage) bool { return h.Hour.Equal(&hour) })
	if i < 0 {
		i, a.Hours = len(a.Hours), append(a.Hours, kcloudv1alpha1.HourlyAverage{Hour: hour})
	}
	h := &a.Hours[i]
	h.Average = (h.Average*float64(h.Seconds) + rate*float64(seconds)) / float64(h.Seconds+seconds)
	h.Seconds += seconds
	if mostlyRead(*h) { // a clock that is wrong for a moment closes none
		closeHours(a, hour)
	}
	if extra := len(a.Hours) - keptHours - 1; extra > 0 {
		a.Hours = a.Hours[extra:]
	}
}

// fewestHours are read before anything is compared with them.
const fewestHours = 6

// history is the mean of the hours before this one, and how far they lie apart: their standard deviation, at least a
// hundredth of the mean. Hours of which less than half was read, or that began more than a day ago, do not count.
func history(a *kcloudv1alpha1.Accrual) (mean, deviation float64, known bool) {
	var list []float64
	oldest := a.Until.Add(-(keptHours + 1) * time.Hour)
	this := a.Until.Truncate(time.Hour)
	for _, h := range a.Hours {
		if h.Hour.Time.Before(this) && h.Hour.After(oldest) && mostlyRead(h) {
			list = append(list, h.Average)
		}
	}
	if len(list) < fewestHours {
		return 0, 0, false
	}
	for _, x := range list {
		mean += x / float64(len(list))
	}
	for _, x := range list {
		deviation += (x - mean) * (x - mean) / float64(len(list))
	}
	return mean, max(math.Sqrt(deviation), mean/100), mean > 0
}
