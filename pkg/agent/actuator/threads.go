package actuator

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// realtime says that a policy needs a group's real-time budget.
func realtime(policy uint32) bool { return policy == unix.SCHED_FIFO || policy == unix.SCHED_RR }

// urgent says that threads of a policy come before all ordinary ones.
func urgent(policy uint32) bool { return realtime(policy) || policy == unix.SCHED_DEADLINE }

// ordinary says that a thread has the attributes of one that was given nothing, and those that we give to threads that
// we stop.
func ordinary(a *unix.SchedAttr) bool {
	return a.Policy == unix.SCHED_NORMAL && a.Nice == 0 && a.Flags&unix.SCHED_FLAG_RESET_ON_FORK == 0
}

// States of threads.
const (
	runnable        = 'R'
	uninterruptible = 'D'
)

// threadsOf lists a group's threads, in memory that the next call uses again.
func (m *machine) threadsOf(f files) ([]int32, error) {
	if m.tids == nil {
		m.tids, m.buf = make([]int32, 0, 256), make([]byte, 1<<12)
	}
	for {
		tids, err := f.list(m.tids, m.buf)
		if err != nil || len(tids) < cap(m.tids) {
			return tids, err
		}
		m.tids = make([]int32, 0, 4*cap(m.tids))
	}
}

// attrs is what threads have; those that have ended are left out.
func (m *machine) attrs(tids []int32) map[int32]unix.SchedAttr {
	out := make(map[int32]unix.SchedAttr, len(tids))
	for _, tid := range tids {
		var a unix.SchedAttr
		if m.kernel.attr(int(tid), &a) == nil {
			out[tid] = a
		}
	}
	return out
}

// countRealtime counts a group's threads, and those of them that have a real-time policy now.
func (m *machine) countRealtime(f files) (all, some int, err error) {
	tids, err := m.threadsOf(f)
	for _, tid := range tids {
		var a unix.SchedAttr
		if m.kernel.attr(int(tid), &a) != nil {
			continue // it has ended
		}
		if urgent(a.Policy) {
			some++
		}
	}
	return len(tids), some, err
}

// demoteAll makes ordinary threads of a group's real-time ones. One that is made meanwhile inherits its maker's policy, so the list is
// read until nothing is left to do.
func (m *machine) demoteAll(f files) error {
	const rounds = 8
	for range rounds {
		tids, err := m.threadsOf(f)
		if err != nil {
			return err
		}
		again := false
		for _, tid := range tids {
			changed, err := demote(m.kernel, int(tid))
			if err != nil {
				return err
			}
			again = again || changed
		}
		if !again {
			return nil
		}
	}
	return fmt.Errorf("taking real-time policies: new threads appear faster than they are found: %w", ErrBusy)
}

// demote a thread; one that ended meanwhile needs nothing.
func demote(k kernel, tid int) (bool, error) {
	var a unix.SchedAttr
	err := k.attr(tid, &a)
	if err == nil && realtime(a.Policy) {
		ordinary := unix.SchedAttr{Policy: unix.SCHED_NORMAL, Flags: a.Flags & unix.SCHED_FLAG_RESET_ON_FORK}
		if err = k.setAttr(tid, &ordinary); err == nil {
			return true, nil
		}
	}
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("taking the real-time policy from thread %d: %w", tid, err)
	}
	return false, nil
}

// staleThreads is how many records of threads that ended a group may have.
const staleThreads = 64

// threadsHad are the start times of threads that the journal has for a group, and its records of them, last first. Those of threads that
// ended, also where another has their number, are dropped once there are many.
func (m *machine) threadsHad(group string, alive map[int32]unix.SchedAttr) (had map[int]uint64, threads []record, err error) {
	had = map[int]uint64{}
	var stale []record
	for _, r := range m.journal.of(group) {
		if r.Thread == 0 {
			continue
		}
		_, later := had[r.Thread]
		if !later {
			had[r.Thread] = r.Started
		}
		threads = append(threads, r)
		if _, lives := alive[int32(r.Thread)]; !lives || later {
			stale = append(stale, r)
		}
	}
	if len(stale) <= staleThreads {
		return had, threads, nil
	}
	return had, threads, m.journal.drop(stale[:len(stale)-1]...) // the first thread's says what others had
}

// putBackThread gives a thread the scheduling that it had; one that ended, or whose number another has now,
// needs nothing.
func (m *machine) putBackThread(r record) error {
	if started, err := m.kernel.started(r.Thread); err != nil || started != r.Started {
		return nil //nolint:nilerr // A thread that cannot be read has ended.
	}
	a := r.Attr.attr()
	err := m.kernel.setAttr(r.Thread, &a)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("giving thread %d of %s back its policy %d: %w", r.Thread, r.Group, r.Attr.Policy, err)
	}
	return nil
}

// giveBack prepares putting back the threads of a group, by what the backend that changed them did.
func (m *machine) giveBack(group string, threads []record) error {
	// A thread becomes a deadline thread again only where it may run on every CPU.
	if slices.ContainsFunc(threads, func(r record) bool { return r.By != FIFO && r.Attr.Policy == unix.SCHED_DEADLINE }) {
		return m.spread(group)
	}
	return nil
}

func (s schedule) attr() unix.SchedAttr {
	return unix.SchedAttr{
		Policy: s.Policy, Flags: s.Flags, Nice: s.Nice, Priority: s.Priority,
		Runtime: s.Runtime, Deadline: s.Deadline, Period: s.Period,
	}
}

func scheduleOf(a unix.SchedAttr) *schedule {
	return &schedule{
		Policy: a.Policy, Flags: a.Flags, Nice: a.Nice, Priority: a.Priority,
		Runtime: a.Runtime, Deadline: a.Deadline, Period: a.Period,
	}
}
