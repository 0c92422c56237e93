package actuator

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// deadlineGroup is a group of deadline threads.
type deadlineGroup struct {
	backend *deadline
	*anchor
	server Server
	intent atomic.Int64
	// seen are the governed threads, and how far they had come when last looked at.
	seen map[int32]trace
	// late are the first threads of processes that came since others were governed, as of the last look.
	late map[int32]bool
}

// trace is what the watchdog knows of a thread, which started tells from another of the same number.
type trace struct {
	usedNs, started uint64
	// since when it wants to run and did not, 0 while it does.
	since int64
	// ordinary: it was, before it was governed.
	ordinary bool
	// freed is when it was made an ordinary thread because it was stranded; it returns after two periods.
	freed int64
	// again is when it is tried next: it has narrowed its own affinity, and was refused.
	again int64
}

// refusedFor is how long a thread is left alone that was refused: each trial has the whole group on every CPU for a moment.
const refusedFor = time.Minute

// ID of the group in the cpu hierarchy.
func (g *deadlineGroup) ID() uint64 { return g.id() }

// Set records what is granted: what the kernel enforces is the high budget, whatever is granted up to it. HOT.
func (g *deadlineGroup) Set(budgetUs int64) error {
	if budgetUs > g.server.HighUs {
		return ErrFixed
	}
	g.intent.Store(budgetUs)
	return nil
}

// tend gives every governed thread its share of the budget. Nothing is changed when all have it.
func (g *deadlineGroup) tend() error {
	attrs, late, err := g.governed()
	if err != nil {
		return err
	}
	g.late = late
	want := g.share(len(attrs))
	wrong, refused := g.wrong(attrs, want)
	if err := g.remember(wrong, attrs); err != nil {
		return err
	}
	g.follow(attrs) // a thread that is watched is on record
	if len(wrong) == 0 {
		return refused
	}
	// What shrinks goes first, so that the sum never exceeds what was admitted.
	slices.SortFunc(wrong, func(a, b int32) int {
		return cmp.Or(cmp.Compare(attrs[b].Runtime, attrs[a].Runtime), cmp.Compare(a, b))
	})
	return errors.Join(refused, g.convert(wrong, want))
}

// wrong are the threads that are to be given this. Not those that are free for now, nor those that were refused a short time ago, which the error tells of.
func (g *deadlineGroup) wrong(attrs map[int32]unix.SchedAttr, want unix.SchedAttr) (tids []int32, refused error) {
	var faults []error
	for _, tid := range slices.Sorted(maps.Keys(attrs)) {
		switch t := g.seen[tid]; {
		case sameDeadline(attrs[tid], want) || t.freed != 0:
		case g.backend.now() < t.again:
			faults = append(faults, g.refusal(tid, unix.EPERM))
		default:
			tids = append(tids, tid)
		}
	}
	return tids, errors.Join(faults...)
}

func (g *deadlineGroup) refusal(tid int32, err error) error {
	return fmt.Errorf("making thread %d of %s a deadline thread: %w: it needs CAP_SYS_NICE, and the "+
		"thread must not have narrowed its own affinity", tid, g.server.Cgroup, err)
}

// leave a thread alone that was refused.
func (g *deadlineGroup) leave(tid int32) {
	if t, ok := g.seen[tid]; ok {
		t.again = g.backend.now() + refusedFor.Nanoseconds()
		g.seen[tid] = t
	}
}

// share of the budget for each of n threads.
func (g *deadlineGroup) share(n int) unix.SchedAttr {
	const leastUs = 2 // the kernel refuses less than 1024 ns
	s := g.server
	return deadlineAttr(max(leastUs, s.HighUs/int64(max(1, n))), s.DeadlineUs, s.PeriodUs)
}

func sameDeadline(a, b unix.SchedAttr) bool {
	return a.Policy == b.Policy && a.Runtime == b.Runtime && a.Deadline == b.Deadline && a.Period == b.Period
}

// convert threads while the group may run everywhere, and put the group back on its core.
func (g *deadlineGroup) convert(tids []int32, want unix.SchedAttr) error {
	b, s := g.backend, g.server
	faults := []error{b.spread(s.Cgroup)}
	for _, tid := range tids {
		if faults[0] != nil {
			break
		}
		a := want
		err := b.kernel.setAttr(int(tid), &a)
		switch {
		case errors.Is(err, unix.ESRCH):
		case errors.Is(err, unix.EBUSY):
			faults = append(faults, fmt.Errorf("making thread %d of %s a deadline thread: %w", tid, s.Cgroup, ErrNoRoom))
		case errors.Is(err, unix.EPERM):
			g.leave(tid)
			faults = append(faults, g.refusal(tid, err))
		case err != nil:
			faults = append(faults, fmt.Errorf("making thread %d of %s a deadline thread: %w", tid, s.Cgroup, err))
		}
	}
	return errors.Join(append(faults, b.place(s.Cgroup, s.Core))...)
}

func (g *deadlineGroup) remember(tids []int32, attrs map[int32]unix.SchedAttr) error {
	had, _, err := g.backend.threadsHad(g.server.Cgroup, attrs)
	if err != nil {
		return err
	}
	var records []record
	for _, tid := range tids {
		started, err := g.backend.kernel.started(int(tid))
		if err != nil || had[int(tid)] == started {
			continue
		}
		records = append(records, record{
			Controller: IdentityCPU, Group: g.server.Cgroup, Inode: g.id(),
			Thread: int(tid), Started: started, Attr: scheduleOf(attrs[tid]), By: Deadline,
		})
	}
	return g.backend.journal.keep(records...)
}

// follow keeps a trace of governed threads, and of no others.
func (g *deadlineGroup) follow(attrs map[int32]unix.SchedAttr) {
	for tid := range g.seen {
		if _, ok := attrs[tid]; !ok {
			delete(g.seen, tid)
		}
	}
	before := g.recorded()
	for tid, a := range attrs {
		if _, ok := g.seen[tid]; ok {
			continue
		}
		if started, err := g.backend.kernel.started(int(tid)); err == nil {
			ordinary, _ := g.wasOrdinary(tid, a, before)
			g.seen[tid] = trace{ordinary: ordinary, started: started}
		}
	}
}

// forget those that ended, whose number another may have by now.
func (g *deadlineGroup) forget() {
	maps.DeleteFunc(g.seen, func(tid int32, t trace) bool {
		started, err := g.backend.kernel.started(int(tid))
		return err != nil || started != t.started
	})
}

// watch frees threads that the kernel has stranded: a deadline thread that wants to run, but is never
// replenished (seen on 6.18 after its policy was changed while it was throttled). As an ordinary thread
// it runs again; it becomes a deadline thread again after two periods, since sooner would strand it anew.
func (g *deadlineGroup) watch() (freed []string) {
	now, period := g.backend.now(), g.server.PeriodUs*1000
	for tid, t := range g.seen {
		used, state, err := g.backend.kernel.progress(int(tid))
		switch {
		case err != nil:
			continue
		case t.freed != 0 && now-t.freed > 2*period:
			t.freed, t.since = 0, 0
		case state != runnable || used != t.usedNs:
			t.since = 0
		case t.since == 0:
			t.since = now
		case t.freed == 0 && now-t.since > 3*period && g.governs(tid):
			a := unix.SchedAttr{Policy: unix.SCHED_NORMAL, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
			if g.backend.kernel.setAttr(int(tid), &a) == nil {
				t.freed = now
				freed = append(freed, fmt.Sprintf("thread %d of %s was stranded as a deadline thread", tid, g.server.Cgroup))
			}
		}
		t.usedNs = used
		g.seen[tid] = t
	}
	return freed
}

// governs says that a thread has its deadlines by us: with whatever share of the budget.
func (g *deadlineGroup) governs(tid int32) bool {
	var a unix.SchedAttr
	want := g.share(1)
	return g.backend.kernel.attr(int(tid), &a) == nil && a.Policy == want.Policy && a.Deadline == want.Deadline && a.Period == want.Period
}

// Read the budget that the threads have together, and the cores.
func (g *deadlineGroup) Read() (Budget, []int, error) {
	b := g.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.same(g, g.anchor); err != nil {
		return Budget{}, nil, err
	}
	attrs, _, err := g.governed()
	if err != nil {
		return Budget{}, nil, err
	}
	budget := Budget{PeriodUs: g.server.PeriodUs}
	for _, a := range attrs {
		if a.Policy == unix.SCHED_DEADLINE {
			budget.RuntimeUs += int64(a.Runtime) / 1000
		}
	}
	cores, err := g.cores()
	return budget, cores, err
}

// Move to another core. Deadline threads follow their cpuset.
func (g *deadlineGroup) Move(core int) error {
	b := g.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	path := g.server.Cgroup
	if err := b.same(g, g.anchor); err != nil {
		return err
	}
	if err := b.place(path, core); err != nil {
		return errors.Join(fmt.Errorf("moving %s to core %d: %w", path, core, err), b.place(path, g.server.Core))
	}
	g.server.Core = core
	return nil
}

// Check puts threads right that something else changed, and frees stranded ones.
func (g *deadlineGroup) Check() (drift []string, err error) {
	b := g.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.same(g, g.anchor); err != nil {
		return nil, err
	}
	drift, err = b.replaced(g.anchor, g.server.Core)
	g.forget()
	drift = append(drift, g.watch()...)
	return drift, errors.Join(err, g.tend())
}

// Threads in the group.
func (g *deadlineGroup) Threads() (all, realtime int, err error) {
	return g.backend.threads(g, g.anchor)
}

// Close lets go of the group. With restore every thread gets its policy back.
func (g *deadlineGroup) Close(restore bool) error {
	return g.backend.closeGroup(g.server.Cgroup, g, restore)
}
