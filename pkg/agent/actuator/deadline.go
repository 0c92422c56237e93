package actuator

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Bounds of the kernel's deadline scheduling, in microseconds: sched_deadline_period_min_us and
// sched_deadline_period_max_us as they are by default.
const (
	leastDeadlinePeriodUs = 100
	mostDeadlinePeriodUs  = 1 << 22
)

// deadline has threads run under SCHED_DEADLINE. A raise would count only from the next replenishment and
// could not be made for a thread on one core at all, so the high budget is in force from the start.
type deadline struct{ plain }

func newDeadline(m *machine) *deadline {
	return &deadline{newPlain(m, traits{
		name: Deadline, source: SourceDeadline, identity: IdentityCPU, policy: PolicyEDF,
		guarantee: "hard: the kernel ends budgets of deadline threads, late by up to a tick; the high budget is reserved " +
			"from the start, and shared by the real-time threads of a container, or its processes' first threads",
	})}
}

// ReservedOnly: see deadline.
func (*deadline) ReservedOnly() bool { return true }

// buildDeadline makes a thread of ours a deadline thread for its trial.
func buildDeadline(m *machine) (Backend, func() error, error) {
	if err := m.placing(); err != nil {
		return nil, nil, err
	}
	return newDeadline(m), m.tryDeadline, nil
}

func (m *machine) tryDeadline() error {
	return m.kernel.borrow(func(tid int, _ map[string]string) error {
		err := m.tryPolicy(tid, deadlineAttr(1_000, 1_000_000, 1_000_000))
		switch {
		case errors.Is(err, unix.EPERM):
			return refusal{"SCHED_DEADLINE is refused to a thread of ours: no right, or not allowed on all CPUs",
				"give the process CAP_SYS_NICE and all CPUs of its scheduling domain"}
		case errors.Is(err, unix.EBUSY):
			return full{refusal{"SCHED_DEADLINE is refused: other deadline threads hold all bandwidth", ""}}
		}
		return err
	})
}

// deadlineAttr: children of a deadline thread start as ordinary ones, or it could not have any.
func deadlineAttr(runtimeUs, deadlineUs, periodUs int64) unix.SchedAttr {
	return unix.SchedAttr{
		Policy: unix.SCHED_DEADLINE, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
		Runtime: uint64(runtimeUs) * 1000, Deadline: uint64(deadlineUs) * 1000, Period: uint64(periodUs) * 1000,
	}
}

// Open takes a group over: its threads become deadline threads while they may run on every core, and are
// then put on theirs.
func (b *deadline) Open(s Server) (Group, error) {
	if s.DeadlineUs < s.HighUs || s.PeriodUs < leastDeadlinePeriodUs || s.PeriodUs > mostDeadlinePeriodUs {
		return nil, fmt.Errorf("opening %s: deadlineUs %d and periodUs %d; want highUs %d <= deadlineUs and %d <= periodUs <= %d",
			s.Cgroup, s.DeadlineUs, s.PeriodUs, s.HighUs, leastDeadlinePeriodUs, mostDeadlinePeriodUs)
	}
	return b.take(s, func(a *anchor) (threaded, error) {
		g := &deadlineGroup{backend: b, anchor: a, server: s, seen: map[int32]trace{}}
		g.intent.Store(s.HighUs)
		return g, g.tend()
	})
}

// spread lets a group run on every CPU, and the levels above it: a thread that may not cannot become
// a deadline thread (EPERM). It lasts only until the group is placed again.
func (m *machine) spread(group string) error {
	cpus, err := m.everyCPU()
	if err != nil {
		return err
	}
	for _, level := range append(above(group), group) {
		if err := m.inCpuset(level, func(t target) error { return m.widen(t, cpus...) }); err != nil {
			return fmt.Errorf("letting %s run on every CPU: %w", group, err)
		}
	}
	return nil
}

// everyCPU is the root's set.
func (m *machine) everyCPU() (cpus []int, err error) {
	name := cpusetCPUs
	if m.unifiedCpuset() {
		name = "cpuset.cpus.effective"
	}
	err = m.inCpuset("/", func(t target) error {
		cpus, err = readCPUs(t, name)
		return err
	})
	return cpus, err
}
