package actuator

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// buildRTGroup looks for real-time groups of cgroup v1; its trial is a budget, and a real-time thread that needs it.
func buildRTGroup(m *machine) (Backend, func() error, error) {
	if err := m.hasRTGroups(); err != nil {
		return nil, nil, err
	}
	if err := m.throttles(); err != nil {
		return nil, nil, err
	}
	b := newBudgeted(m, traits{
		name: RTGroup, source: SourceRTGroup, identity: IdentityCPU, policy: PolicyFixed,
		guarantee: "hard: the kernel ends budgets of real-time groups (cgroup v1), late by up to a tick; " +
			"all cores together offer one pot, kernel.sched_rt_runtime_us of its period",
	}, rtFiles{})
	return b, func() error { return m.tryOut([]string{"cpu"}, b.tryBudget) }, nil
}

// throttles says why the kernel ends budgets of no real-time group; nil when it does. An administrator may turn it off at any time.
func (m *machine) throttles() error {
	runtime, _, err := m.host.RTLimits()
	if err != nil {
		return fmt.Errorf("finding out whether the kernel throttles real-time groups: %w", err)
	}
	if runtime < 0 {
		return refusal{"kernel.sched_rt_runtime_us is -1, which turns the throttling of groups off, too",
			"sysctl kernel.sched_rt_runtime_us=950000"}
	}
	return nil
}

func (m *machine) hasRTGroups() error {
	if m.cg.InUnified("cpu") {
		return refusal{"the cpu controller is in cgroup v2, which has no budgets for real-time groups", ""}
	}
	if !m.cg.Has("cpuset") {
		return refusal{"the cpuset controller is not mounted: containers cannot be kept on a core", "mount cpuset"}
	}
	err := m.in("cpu", "/", func(f files) error {
		_, err := f.read(rtRuntime)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return refusal{"cpu.rt_runtime_us is not there: the kernel is built without CONFIG_RT_GROUP_SCHED, or has it turned off",
			"boot with rt_group_sched=1, or use fifo"}
	}
	return err
}

// tryBudget gives a scratch group the smallest budget and lets a thread of ours be real-time in it.
func (b *budgeted) tryBudget(group string) error {
	return b.lend(group, 0, Budget{100, 100_000}, func(files) error { return b.tryFIFO() })
}

// lend gives a scratch group a budget while a function runs. Where it is not at the top, the levels above have to have
// room for it, too.
func (b *budgeted) lend(group string, core int, budget Budget, do func(files) error) error {
	s := Server{Cgroup: group, Core: core, PeriodUs: budget.PeriodUs, HighUs: budget.RuntimeUs}
	controller := b.bw.controller()
	b.servers[group] = s
	err := b.refused(b.makeWay(s))
	if err == nil {
		err = b.in(controller, group, func(f files) error {
			write := func() error { return b.bw.write(b.machine, target{controller, group, f}, core, budget) }
			if err := b.patiently(write, func() bool { return b.fits(core) }); err != nil {
				return b.refused(err)
			}
			return do(f)
		})
	}
	delete(b.servers, group)
	b.left(group)
	return errors.Join(err, b.releaseUp(group))
}

// refused explains a write that the kernel did not allow.
func (m *machine) refused(err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return refusal{err.Error(), "give write access to the cgroup hierarchies"}
	case errors.Is(err, ErrNoRoom):
		return full{refusal{err.Error() + ": other groups hold all bandwidth", "set their cpu.rt_runtime_us to 0"}}
	}
	return err
}
