package rt

import (
	"cmp"
	"slices"
)

// Task is a periodic or sporadic task inside a container. Times are microseconds.
type Task struct {
	// Period is the shortest time between releases, WCET the longest execution time, Deadline relative to
	// the release; 0 means Period.
	Period, WCET, Deadline int64
}

// MaxTaskPeriod bounds the periods of tasks, in microseconds.
const MaxTaskPeriod int64 = 100_000_000

// due is the task's relative deadline.
func (t Task) due() int64 {
	if t.Deadline > 0 && t.Deadline < t.Period {
		return t.Deadline
	}
	return t.Period
}

func (t Task) valid() bool {
	return t.Period > 0 && t.Period <= MaxTaskPeriod && t.WCET > 0 && t.WCET <= t.due()
}

// SupplyBound is the least CPU time, in microseconds, that a server of the given budget supplies in any
// interval of length t: sbf of the periodic resource model (Shin and Lee, RTSS 2003), with a deadline
// shorter than the period that of the explicit deadline model (Easwaran, Anand, Lee, RTSS 2007). Up to
// Period + Deadline - 2 budgets of an interval may pass without any.
func SupplyBound(s Server, budget, t int64) int64 {
	late := t - (s.Window() - budget)
	if late < 0 || budget <= 0 || s.Period <= 0 {
		return 0
	}
	whole := late / s.Period
	return whole*budget + max(0, late-whole*s.Period-(s.Period-budget))
}

// LinearSupplyBound is the line below SupplyBound, lsbf(t) = Q/P (t - blackout), rounded down.
func LinearSupplyBound(s Server, budget, t int64) int64 {
	if s.Period <= 0 {
		return 0
	}
	return max(0, budget*(t-blackout(s, budget))/s.Period)
}

// blackout is the longest time without supply, 2(P-Q) for deadlines equal to periods.
func blackout(s Server, budget int64) int64 { return s.Period + s.Window() - 2*budget }

// supplyTime is the shortest interval in which the server surely supplies y > 0: the inverse of
// SupplyBound.
func supplyTime(s Server, budget, y int64) int64 {
	whole := (y - 1) / budget
	return blackout(s, budget) + whole*s.Period + y - whole*budget
}

// NoTask stands for none of the tasks.
const NoTask = -1

// FixedPriorityFits tests tasks under deadline-monotonic fixed priorities in a server of the given budget:
// for each there is a t up to its deadline with rbf(t) <= sbf(t) (Shin and Lee, RTSS 2003). late is the
// index of the first task for which there is none.
func FixedPriorityFits(s Server, budget int64, tasks []Task) (late int, ok bool) {
	if i := slices.IndexFunc(tasks, func(t Task) bool { return !t.valid() }); i >= 0 || budget <= 0 {
		return max(0, i), false
	}
	for i, t := range tasks {
		_, ok := response(supplyTime(s, budget, t.WCET), t.due(), func(r int64) int64 {
			return supplyTime(s, budget, requestBound(tasks, i, r)) - supplyTime(s, budget, t.WCET)
		})
		if !ok {
			return i, false
		}
	}
	return NoTask, true
}

// requestBound is rbf: what task i and the tasks of higher or equal priority request in an interval.
func requestBound(tasks []Task, i int, interval int64) int64 {
	total := tasks[i].WCET
	for j, t := range tasks {
		if j == i || t.due() > tasks[i].due() {
			continue
		}
		total = min(total+ceilDiv(interval, t.Period)*t.WCET, MaxTaskPeriod+1)
	}
	return total
}

// maxDemandPoints is how many absolute deadlines EDFFits looks at. Sets that need more are taken not to
// fit.
const maxDemandPoints = 10_000

// EDFFits tests tasks under EDF in a server of the given budget: dbf(t) <= sbf(t) at every absolute
// deadline (Shin and Lee, RTSS 2003; dbf: Baruah, Mok, Rosier, RTSS 1990) up to where the line
// above dbf meets lsbf.
func EDFFits(s Server, budget int64, tasks []Task) bool {
	if slices.ContainsFunc(tasks, func(t Task) bool { return !t.valid() }) || budget <= 0 || s.Period <= 0 {
		return false
	}
	end, ok := demandHorizon(s, budget, tasks)
	if !ok {
		return false
	}
	points := int64(0)
	for _, t := range tasks {
		points += max(0, end-t.due())/t.Period + 1
		if points > maxDemandPoints {
			return false
		}
	}
	for _, t := range tasks {
		for at := t.due(); at <= end; at += t.Period {
			if demandBound(tasks, at) > SupplyBound(s, budget, at) {
				return false
			}
		}
	}
	return true
}

// demandHorizon is from where on U t + constant <= lsbf(t); false when the tasks' bandwidth U is not
// below the server's.
func demandHorizon(s Server, budget int64, tasks []Task) (int64, bool) {
	need, constant := PPM(0), int64(0)
	for _, t := range tasks {
		need = sum(need, ratio(t.WCET, t.Period))
		constant += ceilDiv(t.WCET*(t.Period-t.due()), t.Period)
	}
	rate := PPM(budget * int64(OneCore) / s.Period)
	if need >= rate {
		return 0, len(tasks) == 0
	}
	return ceilDiv(constant*int64(OneCore)+int64(rate)*max(0, blackout(s, budget)), int64(rate-need)) + 1, true
}

// demandBound is dbf: what jobs request that are released and due within an interval of that length.
func demandBound(tasks []Task, interval int64) int64 {
	total := int64(0)
	for _, t := range tasks {
		if interval >= t.due() {
			total += ((interval-t.due())/t.Period + 1) * t.WCET
		}
	}
	return total
}

// PeriodAdvice is what to tell the owner of a container about the server that serves its tasks.
type PeriodAdvice struct {
	// Fits: the tasks meet their deadlines with the low budget, FitsRaised: with the largest budget the
	// server is guaranteed, under deadline-monotonic priorities. Both are true without tasks.
	Fits, FitsRaised bool
	// FitsEDF: as Fits, if the container schedules its tasks by EDF.
	FitsEDF bool
	// Late is the index of a task that may miss its deadline with the low budget; NoTask when none does.
	Late int
	// MaxPeriod is the longest server period that is advised, half the shortest period of a task, in
	// microseconds; 0 without tasks. A longer one leaves tasks without CPU for longer than their
	// period.
	MaxPeriod int64
	// Blackout is the longest time that the server may leave its tasks without CPU with the low budget.
	Blackout int64
}

// AdvisePeriod says whether a server serves its tasks, and what period would.
func AdvisePeriod(s Server, tasks []Task) PeriodAdvice {
	advice := PeriodAdvice{Late: NoTask, Blackout: blackout(s, s.Low)}
	if len(tasks) > 0 {
		shortest := slices.MinFunc(tasks, func(a, b Task) int { return cmp.Compare(a.Period, b.Period) })
		advice.MaxPeriod = shortest.Period / 2
	}
	advice.Late, advice.Fits = FixedPriorityFits(s, s.Low, tasks)
	advice.FitsEDF = EDFFits(s, s.Low, tasks)
	_, advice.FitsRaised = FixedPriorityFits(s, s.Guaranteed(), tasks)
	return advice
}
