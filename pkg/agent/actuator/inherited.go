package actuator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// givenRecord is the controller of journal records that tell of no file but of a priority that threads of a group were given: one that has
// it and no record was made by one of them since, whoever gave it, and has nothing of its own.
const givenRecord = "given"

func (g *fifoGroup) given(priority uint32) record {
	return record{Controller: givenRecord, Group: g.path, Inode: g.id(), File: "priority-" + itoa(int64(priority)), By: FIFO}
}

func (g *fifoGroup) ours(a unix.SchedAttr) bool {
	return a.Policy == unix.SCHED_FIFO && g.backend.journal.has(g.given(a.Priority))
}

// takeBack takes from a group what threads there have by ours without a record.
func (m *machine) takeBack(threads []record, sought places) error {
	if len(threads) == 0 || threads[0].By != FIFO {
		return nil
	}
	f, err := sought.open(threads[len(threads)-1])
	if err == nil {
		err = errors.Join(m.takeFIFO(f, threads), f.close())
	}
	if gone(err) {
		return nil // and all its threads with it
	}
	return err
}

// forking is how long a thread may be at making another, which has our policy and is not in the group's list yet.
const forking = 10 * time.Millisecond

// takeFIFO takes our policy from the threads of a group that the journal does not have, those that were made since, once the others have
// back what was theirs. One that is made meanwhile by one that was not reached yet inherits our policy, so the list is read until nothing
// is left to do. ErrBusy, wrapped, when that has no end.
func (m *machine) takeFIFO(f files, threads []record) error {
	const rounds = 16
	group, still := threads[0].Group, false
	for range rounds {
		tids, err := m.threadsOf(f)
		if err != nil {
			return fmt.Errorf("listing the threads of %s: %w", group, asGone(err))
		}
		again := false
		for _, tid := range tids {
			changed, err := m.likeFirst(tid, threads)
			if err != nil {
				return err
			}
			again = again || changed
		}
		if !again && (still || len(tids) == 0) {
			return nil
		}
		if still = !again; still {
			m.kernel.pause(forking)
		}
	}
	return fmt.Errorf("taking our policy from %s: new threads appear faster than they are found: %w", group, ErrBusy)
}

// hasRecord says that a thread is the one that a record tells of.
func (m *machine) hasRecord(tid int32, threads []record) bool {
	return slices.ContainsFunc(threads, func(r record) bool {
		if r.Thread != int(tid) {
			return false
		}
		started, err := m.kernel.started(r.Thread)
		return err == nil && started == r.Started
	})
}

// likeFirst gives a real-time thread without a record what it would have inherited from the first thread of its group, whose record is the
// last. It says whether it had anything else, or has ended.
func (m *machine) likeFirst(tid int32, threads []record) (changed bool, err error) {
	var a unix.SchedAttr
	if m.kernel.attr(int(tid), &a) != nil {
		return true, nil //nolint:nilerr // It has ended: whom it made before may live.
	}
	first := threads[len(threads)-1]
	want := first.Attr.inherited()
	if !realtime(a.Policy) || a.Policy == want.Policy && a.Priority == want.Priority || m.hasRecord(tid, threads) {
		return false, nil
	}
	err = m.kernel.setAttr(int(tid), &want)
	if errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("giving thread %d of %s back policy %d: %w", tid, first.Group, want.Policy, err)
	}
	return true, nil
}

// inherited is what a thread has that one with this scheduling makes.
func (s schedule) inherited() unix.SchedAttr {
	if s.Policy == unix.SCHED_DEADLINE || s.Flags&unix.SCHED_FLAG_RESET_ON_FORK != 0 {
		return unix.SchedAttr{Policy: unix.SCHED_NORMAL, Nice: max(0, s.Nice)}
	}
	return s.attr()
}
