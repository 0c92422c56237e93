package actuator

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Files of real-time groups in cgroup v1.
const (
	rtRuntime = "cpu.rt_runtime_us"
	rtPeriod  = "cpu.rt_period_us"
)

// parseBudget reads a runtime and a period, in microseconds.
func parseBudget(runtime, period string) (Budget, error) {
	q, err := strconv.ParseInt(strings.TrimSpace(runtime), 10, 64)
	if err != nil || q < 0 {
		return Budget{}, fmt.Errorf("runtime %q us; want a whole number of at least 0", runtime)
	}
	t, err := strconv.ParseInt(strings.TrimSpace(period), 10, 64)
	if err != nil || t <= 0 {
		return Budget{}, fmt.Errorf("period %q us; want a whole number above 0", period)
	}
	return Budget{RuntimeUs: q, PeriodUs: t}, nil
}

// rtFiles are cpu.rt_runtime_us and cpu.rt_period_us: one budget for all CPUs, of which the whole tree
// has one pot.
type rtFiles struct{}

func (rtFiles) controller() string { return "cpu" }
func (rtFiles) names() []string    { return []string{rtRuntime, rtPeriod} }
func (rtFiles) perCore() bool      { return false }

func (rtFiles) managed(Budget) bool           { return true }
func (rtFiles) window() int64                 { return windowUs }
func (rtFiles) share(d demand, w int64) int64 { return d.within(w) }
func (rtFiles) most(free, w, t int64) int64   { return (free - overshootUs) / (w/t + 2) }
func (rtFiles) shape(b Budget) Budget         { return b }

func (rtFiles) parse(get func(string) (string, error), _ int) (Budget, error) {
	runtime, err := get(rtRuntime)
	if err != nil {
		return Budget{}, err
	}
	period, err := get(rtPeriod)
	if err != nil {
		return Budget{}, err
	}
	return parseBudget(runtime, period)
}

func (r rtFiles) write(m *machine, t target, _ int, b Budget) error {
	held, err := r.parse(t.read, 0)
	if err != nil {
		return asGone(err)
	}
	if err := m.keep(t, rtPeriod, rtRuntime); err != nil {
		return err
	}
	return inOrder(held, b,
		func(runtime int64) error { return m.set(t, rtRuntime, itoa(runtime)) },
		func(period int64) error { return m.set(t, rtPeriod, itoa(period)) })
}

// inOrder writes a runtime that shrinks before the period, and one that grows after it. So the ratio is never above the
// larger of the former and the new one, and the runtime never above the period.
func inOrder(held, want Budget, runtime, period func(int64) error) error {
	if want.RuntimeUs < held.RuntimeUs {
		if err := runtime(want.RuntimeUs); err != nil {
			return err
		}
	}
	if want.PeriodUs != held.PeriodUs {
		if err := period(want.PeriodUs); err != nil {
			return err
		}
	}
	return runtime(want.RuntimeUs)
}

func (rtFiles) hot(f files, _ int, _ int64) (*hotFile, error) {
	return openHot(f, rtRuntime, "", "")
}

func (rtFiles) first(s Server) table.First {
	return table.First{RuntimeUs: s.BudgetUs, PeriodUs: s.PeriodUs}
}
