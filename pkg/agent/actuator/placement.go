package actuator

import (
	"fmt"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

const (
	cpusetCPUs = "cpuset.cpus"
	cpusetMems = "cpuset.mems"
)

// place puts a group on one core: first on what it has and the core, then on the core alone, so that
// its threads always have one to run on. Levels above are widened first where they lack the core.
func (m *machine) place(group string, core int) error {
	for _, level := range above(group) {
		if err := m.inCpuset(level, func(t target) error { return m.widen(t, core) }); err != nil {
			return err
		}
	}
	return m.inCpuset(group, func(t target) error {
		if err := m.keep(t, cpusetCPUs); err != nil {
			return err
		}
		if err := m.fillMems(t); err != nil {
			return err
		}
		if err := m.widen(t, core); err != nil {
			return err
		}
		if err := m.set(t, cpusetCPUs, host.FormatCPUList([]int{core})); err != nil {
			return err
		}
		return m.effective(t, core)
	})
}

// widen adds cores to the set of a group. An empty set of v2 is that of the group above: there the
// cores are in already, or no write here would help.
func (m *machine) widen(t target, cores ...int) error {
	cpus, err := readCPUs(t, cpusetCPUs)
	if err != nil || (len(cpus) == 0 && m.unifiedCpuset()) {
		return err
	}
	union := host.FormatCPUList(slices.Concat(cpus, cores))
	if union == host.FormatCPUList(cpus) {
		return nil
	}
	if err := m.fillMems(t); err != nil {
		return err
	}
	return m.set(t, cpusetCPUs, union)
}

// fillMems gives a group of v1 without memory nodes those of the group above: without any, no task can
// enter it.
func (m *machine) fillMems(t target) error {
	if m.unifiedCpuset() {
		return nil
	}
	mems, err := t.read(cpusetMems)
	if err != nil || mems != "" {
		return err
	}
	from := "/"
	if levels := above(t.group); len(levels) > 0 {
		from = levels[len(levels)-1]
	}
	err = m.inCpuset(from, func(parent target) (err error) {
		mems, err = parent.read(cpusetMems)
		return err
	})
	if err != nil || mems == "" {
		return err
	}
	return m.set(t, cpusetMems, mems)
}

// effective verifies on v2, where a set may be written that the group above does not allow, that the
// group runs on the core.
func (m *machine) effective(t target, core int) error {
	if !m.unifiedCpuset() {
		return nil
	}
	cpus, err := readCPUs(t, "cpuset.cpus.effective")
	if err != nil {
		return err
	}
	if !slices.Equal(cpus, []int{core}) {
		return fmt.Errorf("placing %s on core %d: its effective CPUs are %q: a group above does not have the core",
			t.group, core, host.FormatCPUList(cpus))
	}
	return nil
}

func (m *machine) inCpuset(group string, do func(target) error) error {
	return m.in("cpuset", group, func(f files) error { return do(target{"cpuset", group, f}) })
}

func (m *machine) unifiedCpuset() bool { return m.cg.InUnified("cpuset") }

func readCPUs(f files, name string) ([]int, error) {
	text, err := f.read(name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, asGone(err))
	}
	cpus, err := host.ParseCPUList(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return cpus, nil
}
