package rt_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

func drawSupply(t *rapid.T) rt.Server {
	period := rapid.Int64Range(2, 60).Draw(t, "period")
	low := rapid.Int64Range(1, period).Draw(t, "budget")
	return rt.Server{Period: period, Low: low, High: low, Deadline: rapid.Int64Range(low, period).Draw(t, "deadline")}
}

// leastSupply slides an interval over the worst pattern: a budget at the very start of its period, the
// later ones as late as their deadlines allow.
func leastSupply(s rt.Server, length int64) int64 {
	supplies := func(at int64) bool {
		inPeriod := at % s.Period
		if at < s.Period {
			return inPeriod < s.Low
		}
		return inPeriod >= s.Deadline-s.Low && inPeriod < s.Deadline
	}
	least := length
	for from := range s.Period * 2 {
		got := int64(0)
		for at := from; at < from+length; at++ {
			if supplies(at) {
				got++
			}
		}
		least = min(least, got)
	}
	return least
}

func TestSupplyBoundIsTheLeastSupply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSupply(t)
		length := rapid.Int64Range(0, 3*s.Period).Draw(t, "length")
		got, want := rt.SupplyBound(s, s.Low, length), leastSupply(s, length)
		if got != want {
			t.Fatalf("%+v: %d in %d, want %d", s, got, length, want)
		}
		if line := rt.LinearSupplyBound(s, s.Low, length); line > got {
			t.Fatalf("%+v: the line is at %d, the bound at %d", s, line, got)
		}
	})
}

// Response times by hand: tasks released together at the start of the longest time without supply.
func TestFixedPriorityFitsIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSupply(t)
		tasks := drawTasks(t)
		_, ok := rt.FixedPriorityFits(s, s.Low, tasks)
		if want := fitsByPoints(s, tasks); ok != want {
			t.Fatalf("%+v %+v: %v, want %v", s, tasks, ok, want)
		}
		if ok && !rt.EDFFits(s, s.Low, tasks) && bandwidth(tasks)*float64(s.Period) < float64(s.Low)-1e-9 {
			t.Fatalf("%+v %+v: fits by priorities and not by EDF, which is optimal", s, tasks)
		}
	})
}

func drawTasks(t *rapid.T) []rt.Task {
	var tasks []rt.Task
	for range rapid.IntRange(1, 4).Draw(t, "tasks") {
		period := rapid.Int64Range(5, 200).Draw(t, "task period")
		wcet := rapid.Int64Range(1, max(1, period/3)).Draw(t, "wcet")
		tasks = append(tasks, rt.Task{Period: period, WCET: wcet, Deadline: rapid.Int64Range(wcet, period).Draw(t, "task deadline")})
	}
	return tasks
}

func bandwidth(tasks []rt.Task) float64 {
	u := 0.0
	for _, t := range tasks {
		u += float64(t.WCET) / float64(t.Period)
	}
	return u
}

// fitsByPoints looks at every t up to each deadline.
func fitsByPoints(s rt.Server, tasks []rt.Task) bool {
	for i, task := range tasks {
		found := false
		for at := int64(1); at <= task.Deadline && !found; at++ {
			request := task.WCET
			for j, other := range tasks {
				if j != i && other.Deadline <= task.Deadline {
					request += (at + other.Period - 1) / other.Period * other.WCET
				}
			}
			found = request <= rt.SupplyBound(s, s.Low, at)
		}
		if !found {
			return false
		}
	}
	return true
}

// EDFFits against every t of a long time.
func TestEDFFitsIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, tasks := drawSupply(t), drawTasks(t)
		want := true
		for at := int64(1); at <= 3000 && want; at++ {
			demand := int64(0)
			for _, task := range tasks {
				if at >= task.Deadline {
					demand += ((at-task.Deadline)/task.Period + 1) * task.WCET
				}
			}
			want = demand <= rt.SupplyBound(s, s.Low, at)
		}
		if got := rt.EDFFits(s, s.Low, tasks); got && !want {
			t.Fatalf("%+v %+v: fits, but demand exceeds supply", s, tasks)
		} else if !got && want && bandwidth(tasks)*float64(s.Period) < 0.98*float64(s.Low) {
			t.Fatalf("%+v %+v: does not fit, but demand never exceeds supply", s, tasks)
		}
	})
}

// Half the bandwidth in shorter pieces serves tasks better.
func TestAdvisePeriod(t *testing.T) {
	tasks := []rt.Task{{Period: 8_000, WCET: 1_000}, {Period: 12_000, WCET: 1_000}}
	coarse := rt.AdvisePeriod(rt.Server{Period: 10_000, Low: 6_000, High: 6_000}, tasks)
	if coarse.Fits || coarse.FitsRaised || coarse.Late != 0 || coarse.MaxPeriod != 4_000 || coarse.Blackout != 8_000 {
		t.Errorf("10 ms server: %+v", coarse)
	}
	fine := rt.AdvisePeriod(rt.Server{Period: 2_000, Low: 600, High: 600}, tasks)
	if !fine.Fits || !fine.FitsEDF || fine.Late != rt.NoTask || fine.Blackout != 2_800 {
		t.Errorf("2 ms server: %+v", fine)
	}
	raised := rt.AdvisePeriod(rt.Server{Criticality: rt.High, Period: 5_000, Low: 500, High: 2_500}, tasks)
	if raised.Fits || !raised.FitsRaised {
		t.Errorf("fits only when raised: %+v", raised)
	}
	if none := rt.AdvisePeriod(rt.Server{Period: 2_000, Low: 600, High: 600}, nil); !none.Fits || none.MaxPeriod != 0 || none.Late != rt.NoTask {
		t.Errorf("no tasks: %+v", none)
	}
	if bad := rt.AdvisePeriod(rt.Server{Period: 2_000, Low: 600, High: 600}, []rt.Task{{Period: 0}}); bad.Fits || bad.FitsEDF || bad.Late != 0 {
		t.Errorf("a task that means nothing: %+v", bad)
	}
}
