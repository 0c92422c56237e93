package actuator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// givenRecord is the controller of journal records that tell of no file but of a priority that threads of a group were
// given. A thread that has this priority and no record was made by such a thread after it had it. It has nothing of its
// own, whichever process gave it.
const givenRecord = "given"

func given(group string, inode uint64, priority uint32) record {
	return record{Controller: givenRecord, Group: group, Inode: inode, File: "priority-" + itoa(int64(priority)), By: FIFO}
}

// expelled is the record of a group that had too many threads: its threads are given nothing any more, by no process.
func expelled(group string, inode uint64) record {
	return record{Controller: givenRecord, Group: group, Inode: inode, File: "nothing", By: FIFO}
}

// gave says that threads of a group were given what one has.
func (m *machine) gave(group string, inode uint64, a unix.SchedAttr) bool {
	return a.Policy == unix.SCHED_FIFO && m.journal.has(given(group, inode, a.Priority))
}

// forking is how much CPU time it takes at most to make a thread or a process, in nanoseconds. The latter copies page tables, which takes
// a few milliseconds for each gigabyte.
const forking = uint64(50 * time.Millisecond)

// makers are threads that may be making another which they began before their policy was taken from them, so that it has inherited that, and is in no
// list before it is made. Nothing says that one is not, but that it sleeps, which making another never does but in state D, or has used more CPU time
// since than that takes.
type makers struct {
	// used is the CPU time in nanoseconds that they had used then, by their number.
	used map[int32]uint64
	// stopped: they were ordinary threads by us, and so is what they make.
	stopped bool
}

// watch a thread whose policy has been taken, unless it sleeps already.
func (m *makers) watch(k kernel, tid int32) {
	if used, state, err := k.progress(int(tid)); err == nil && (state == runnable || state == uninterruptible) {
		m.used[tid] = used
	}
}

// forget who sleeps, has ended, or has gone on for long enough.
func (m *makers) forget(k kernel) {
	maps.DeleteFunc(m.used, func(tid int32, before uint64) bool {
		used, state, err := k.progress(int(tid))
		return err != nil || state != runnable && state != uninterruptible || used >= before+forking
	})
}

// byGroup are the records of threads that backend fifo changed, for each group: a path may have named several.
func byGroup(threads []record) (out [][]record) {
	threads = slices.DeleteFunc(slices.Clone(threads), func(r record) bool { return r.By != FIFO })
	for len(threads) > 0 {
		inode := threads[0].Inode
		var of []record
		threads = slices.DeleteFunc(threads, func(r record) bool {
			if r.Inode == inode {
				of = append(of, r)
			}
			return r.Inode == inode
		})
		out = append(out, of)
	}
	return out
}

// takeBack takes from groups what threads there have by ours without a record. It says whether some may come yet.
func (m *machine) takeBack(threads []record, sought places, stopped map[uint64]bool) (making bool, err error) {
	var faults []error
	for _, of := range byGroup(threads) {
		inode := of[0].Inode
		f, err := sought.open(of[len(of)-1])
		if err == nil {
			err = errors.Join(m.takeFIFO(f, of, stopped[inode]), f.close())
		}
		if gone(err) { // and all its threads with it
			delete(m.making, inode)
			continue
		}
		faults = append(faults, err)
		making = making || m.making[inode] != nil && len(m.making[inode].used) > 0
	}
	return making, errors.Join(faults...)
}

// stoppedGroups are those, by inode, whose threads are ordinary ones by us, before anything is put back. What cannot be read now is an error
// of takeBack.
func (m *machine) stoppedGroups(threads []record, sought places) map[uint64]bool {
	out := map[uint64]bool{}
	for _, of := range byGroup(threads) {
		first := of[len(of)-1]
		if m.making[first.Inode] != nil || !first.Attr.endows() {
			continue
		}
		f, err := sought.open(first)
		if err != nil {
			continue
		}
		tids, err := m.threadsOf(f)
		if err == nil {
			out[first.Inode] = m.stopped(of, m.attrs(tids))
		}
		_ = f.close()
	}
	return out
}

// stopped says that the threads of a group are ordinary ones by us: one is that had something else and is on record with it. Where none of
// those lives, they are when none has what was given.
func (m *machine) stopped(threads []record, attrs map[int32]unix.SchedAttr) bool {
	told := false
	for _, r := range threads {
		a, lives := attrs[int32(r.Thread)]
		was := r.Attr.attr()
		if !lives || ordinary(&was) || !m.tellsOf(r) {
			continue
		}
		if ordinary(&a) {
			return true
		}
		told = true
	}
	if told || len(threads) == 0 {
		return false
	}
	for _, a := range attrs {
		if m.gave(threads[0].Group, threads[0].Inode, a) {
			return false
		}
	}
	return true
}

// tellsOf says that the thread of a record is the one that has its number now.
func (m *machine) tellsOf(r record) bool {
	started, err := m.kernel.started(r.Thread)
	return err == nil && started == r.Started
}

// takeFIFO takes our policy from the threads of a group that the journal does not have, those that were made since, once the others have
// back what was theirs. One that is made meanwhile by one that was not reached yet inherits our policy, so the list is read until nothing
// is left to do: ErrBusy, wrapped, when that has no end. Those that may be making another when it has are left in making, for the
// next time.
func (m *machine) takeFIFO(f files, threads []record, stopped bool) error {
	const rounds = 16
	group, left := threads[0].Group, m.making[f.id()]
	for range rounds {
		first, last := left == nil, left != nil && len(left.used) == 0 // whatever was being made is in this list
		tids, err := m.threadsOf(f)
		if err != nil {
			return fmt.Errorf("listing the threads of %s: %w", group, asGone(err))
		}
		if first {
			left = &makers{used: map[int32]uint64{}, stopped: stopped}
			m.making[f.id()] = left
		}
		again := false
		for _, tid := range tids {
			changed, err := m.likeFirst(tid, threads, left.stopped)
			if err != nil {
				delete(m.making, f.id()) // the next time begins anew
				return err
			}
			if changed || first {
				left.watch(m.kernel, tid)
			}
			again = again || changed
		}
		if last && !again {
			delete(m.making, f.id())
			return nil
		}
		if left.forget(m.kernel); !again && len(left.used) > 0 {
			return nil
		}
	}
	return fmt.Errorf("taking our policy from %s: new threads appear faster than they are found: %w", group, ErrBusy)
}

// wholly repeats what releases groups until no thread of theirs may be making another, for at most ten seconds. After
// that, no process would take from a new thread the policy that it inherits.
func (m *machine) wholly(release func() error) error {
	const (
		times = 1000
		each  = 10 * time.Millisecond
	)
	err := release()
	for range times {
		if len(m.making) == 0 {
			return err
		}
		m.kernel.pause(each)
		err = release()
	}
	for _, left := range m.making {
		for tid := range left.used {
			err = errors.Join(err, fmt.Errorf("taking our policy from what thread %d makes: it may have been at that since it had it, "+
				"for it neither sleeps nor gets enough of a core: %w", tid, ErrBusy))
		}
	}
	return err
}

// hasRecord says that a thread is the one that a record tells of.
func (m *machine) hasRecord(tid int32, threads []record) bool {
	return slices.ContainsFunc(threads, func(r record) bool { return r.Thread == int(tid) && m.tellsOf(r) })
}

// wasPutBack says that a former release did that, and that the thread has nothing of ours again: what it has may be its own will by now.
func (m *machine) wasPutBack(r record) bool {
	if _, again := m.making[r.Inode]; !again || r.By != FIFO {
		return false
	}
	var a unix.SchedAttr
	return m.kernel.attr(r.Thread, &a) == nil && !m.gave(r.Group, r.Inode, a)
}

// likeFirst gives a thread with a policy of ours and without a record what it would have inherited from the first thread of its group, whose
// record is the last. It says whether it had that, or has ended. Of a group that was stopped the ordinary policy is ours, too.
func (m *machine) likeFirst(tid int32, threads []record, stopped bool) (changed bool, err error) {
	var a unix.SchedAttr
	if m.kernel.attr(int(tid), &a) != nil {
		return true, nil //nolint:nilerr // It has ended: threads that it made before may live.
	}
	first := threads[len(threads)-1]
	want := first.Attr.inherited()
	ours := m.gave(first.Group, first.Inode, a) || stopped && ordinary(&a)
	if !ours || a.Policy == want.Policy && a.Priority == want.Priority && a.Nice == want.Nice || m.hasRecord(tid, threads) {
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

// endows says that a thread that inherits this has more than any has without.
func (s schedule) endows() bool {
	a := s.inherited()
	return !ordinary(&a)
}

// inherited is what a thread has that one with this scheduling makes.
func (s schedule) inherited() unix.SchedAttr {
	if s.Policy == unix.SCHED_DEADLINE || s.Flags&unix.SCHED_FLAG_RESET_ON_FORK != 0 {
		return unix.SchedAttr{Policy: unix.SCHED_NORMAL, Nice: max(0, s.Nice)}
	}
	return s.attr()
}
