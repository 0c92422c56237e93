package actuator

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Files of hierarchical constant bandwidth servers: one of the patches of 2026, and one of older kernels
// beside cpu.rt_runtime_us and cpu.rt_period_us.
const (
	rtMax          = "cpu.rt.max"
	rtMaxEffective = "cpu.rt.max.effective.local"
	rtMulti        = "cpu.rt_multi_runtime_us"
)

// buildHCBS looks for the files, the newer first; its trial is a budget.
func buildHCBS(m *machine) (Backend, func() error, error) {
	if !m.cg.Has("cpu") || !m.cg.Has("cpuset") {
		return nil, nil, errNoCpuset
	}
	if err := m.throttles(); err != nil {
		return nil, nil, err
	}
	var b *budgeted
	err := m.tryOut([]string{"cpu"}, func(group string) error {
		return m.in("cpu", group, func(f files) error {
			bw, err := hcbsFiles(f)
			b = newBudgeted(m, traits{
				name: HCBS, source: SourceOwn, identity: IdentityCPU, policy: PolicyEDF,
				guarantee: "hard: the kernel serves each group by a constant bandwidth server on its core, ending budgets " +
					"late by up to a tick without HRTICK_DL",
			}, bw)
			return err
		})
	})
	if err != nil {
		return nil, nil, err
	}
	if _, err := b.root(firstOf(m.cores)); err != nil {
		return nil, nil, refusal{"the root group has no budget for the groups below it: " + err.Error(),
			"write 900000 1000000 to " + rtMax + " of the root group"}
	}
	return b, func() error {
		return m.tryOut([]string{"cpu"}, func(group string) error {
			return b.lend(group, firstOf(m.cores), Budget{1_000, 1_000_000}, func(files) error { return nil })
		})
	}, nil
}

func firstOf(cores []int) int {
	if len(cores) == 0 {
		return 0
	}
	return cores[0]
}

// hcbsFiles are those that a group has.
func hcbsFiles(f files) (bandwidth, error) {
	for _, known := range []struct {
		name string
		bw   bandwidth
	}{{rtMax, rtMaxFiles{}}, {rtMulti, multiFiles{}}} {
		_, err := f.read(known.name)
		if err == nil {
			return known.bw, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, refusal{"groups have neither " + rtMax + " nor " + rtMulti, "use a kernel with the HCBS patches"}
}

// ratioShare is what a level must have for a demand below it where only ratios are compared: tasks run in
// the servers of containers, levels only lend.
func ratioShare(d demand, periodUs int64) int64 {
	return (d.runtimeUs*periodUs + d.periodUs - 1) / d.periodUs
}

// rtMaxFiles is cpu.rt.max, "<runtime>|max <period>". A level with max has its groups served from the
// next level above that has a budget, so that nothing is to be sized there. Budgets below one level
// add up whatever core they are on.
type rtMaxFiles struct{}

func (rtMaxFiles) controller() string            { return "cpu" }
func (rtMaxFiles) names() []string               { return []string{rtMax} }
func (rtMaxFiles) perCore() bool                 { return false }
func (rtMaxFiles) managed(level Budget) bool     { return level.RuntimeUs >= 0 }
func (rtMaxFiles) window() int64                 { return 0 }
func (rtMaxFiles) share(d demand, w int64) int64 { return ratioShare(d, w) }
func (rtMaxFiles) most(free, w, t int64) int64   { return free * t / w }
func (rtMaxFiles) shape(b Budget) Budget         { return b }

func (rtMaxFiles) parse(get func(string) (string, error), _ int) (Budget, error) {
	text, err := get(rtMax)
	if err != nil {
		return Budget{}, err
	}
	return parseMax(text)
}

func (rtMaxFiles) write(m *machine, t target, _ int, b Budget) error {
	if err := m.keep(t, rtMax); err != nil {
		return err
	}
	if err := m.set(t, rtMax, fmt.Sprintf("%d %d", b.RuntimeUs, b.PeriodUs)); err != nil {
		return err
	}
	// What the group's own server was given, where the kernel says: less than asked when groups below hold some.
	text, err := t.read(rtMaxEffective)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return asGone(err)
	}
	effective, err := parseMax(text)
	if err == nil && effective.RuntimeUs == 0 && b.RuntimeUs > 0 {
		return fmt.Errorf("writing %d us to %s of %s: %s is 0: %w", b.RuntimeUs, rtMax, t.group, rtMaxEffective, ErrNoRoom)
	}
	return err
}

func (rtMaxFiles) hot(f files, _ int, periodUs int64) (*hotFile, error) {
	return openHot(f, rtMax, "", " "+strconv.FormatInt(periodUs, 10))
}

func (rtMaxFiles) first(s Server) table.First {
	if s.BudgetUs == 0 {
		return table.First{}
	}
	return table.First{Unified: map[string]string{rtMax: fmt.Sprintf("%d %d", s.BudgetUs, s.PeriodUs)}}
}

// multiFiles is cpu.rt_multi_runtime_us: a runtime for every CPU, read as a list, written as "<cpus>
// <runtime>", all with the period of cpu.rt_period_us.
type multiFiles struct{}

func (multiFiles) controller() string            { return "cpu" }
func (multiFiles) names() []string               { return []string{rtMulti, rtPeriod} }
func (multiFiles) perCore() bool                 { return true }
func (multiFiles) managed(Budget) bool           { return true }
func (multiFiles) window() int64                 { return 0 }
func (multiFiles) share(d demand, w int64) int64 { return ratioShare(d, w) }
func (multiFiles) most(free, w, t int64) int64   { return free * t / w }
func (multiFiles) shape(b Budget) Budget         { return b }
func (multiFiles) first(Server) table.First      { return table.First{} }

func (multiFiles) parse(get func(string) (string, error), core int) (Budget, error) {
	text, err := get(rtMulti)
	if err != nil {
		return Budget{}, err
	}
	runtimes, err := parseMulti(text)
	if err != nil {
		return Budget{}, err
	}
	if core >= len(runtimes) {
		return Budget{}, fmt.Errorf("reading %s: core %d is not among the %d of %q", rtMulti, core, len(runtimes), text)
	}
	period, err := get(rtPeriod)
	if err != nil {
		return Budget{}, err
	}
	return parseBudget(itoa(runtimes[core]), period)
}

// parseMulti reads a runtime for every CPU.
func parseMulti(text string) ([]int64, error) {
	var out []int64
	for _, field := range strings.Fields(text) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("reading %s: %q of %q; want whole numbers of at least 0", rtMulti, field, text)
		}
		out = append(out, n)
	}
	return out, nil
}

func (f multiFiles) write(m *machine, t target, core int, b Budget) error {
	held, err := f.parse(t.read, core)
	if err != nil {
		return asGone(err)
	}
	if err := m.keep(t, rtPeriod, rtMulti); err != nil {
		return err
	}
	return inOrder(held, b,
		func(runtime int64) error { return setMulti(t, core, runtime) },
		func(period int64) error { return m.set(t, rtPeriod, itoa(period)) })
}

// setMulti writes the runtime of one CPU, and reads it back.
func setMulti(t target, core int, runtimeUs int64) error {
	value := fmt.Sprintf("%d %d", core, runtimeUs)
	held, err := (multiFiles{}).parse(t.read, core)
	if err != nil || held.RuntimeUs == runtimeUs {
		return asGone(err)
	}
	if err := t.write(rtMulti, value); err != nil {
		return describe(t.group, rtMulti, value, err)
	}
	if held, err = (multiFiles{}).parse(t.read, core); err != nil {
		return asGone(err)
	}
	if held.RuntimeUs != runtimeUs {
		return fmt.Errorf("writing %q to %s of %s: it reads back as %d", value, rtMulti, t.group, held.RuntimeUs)
	}
	return nil
}

// putBackMulti writes the runtime of every CPU that differs from what was there.
func putBackMulti(t target, before string) error {
	runtimes, err := parseMulti(before)
	if err != nil {
		return err
	}
	var faults []error
	for core, runtime := range runtimes {
		faults = append(faults, setMulti(t, core, runtime))
	}
	return errors.Join(faults...)
}

func (multiFiles) hot(f files, core int, _ int64) (*hotFile, error) {
	return openHot(f, rtMulti, strconv.Itoa(core)+" ", "")
}
