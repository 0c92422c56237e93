package actuator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

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

// trace is what the watchdog knows of a thread.
type trace struct {
	usedNs uint64
	// since when it wants to run and did not, 0 while it does.
	since int64
	// ordinary: it was, before it was governed.
	ordinary bool
	// freed is when it was made an ordinary thread because it was stranded; it returns after two periods.
	freed int64
}

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

// governed are the threads that share the budget: those that the application made real-time, or else the first threads
// of its processes. A process that comes later is one of those once two looks on end have met it: probes and the like, which are soon
// gone, would have all budgets set anew each time. Late are those that do not share it yet.
func (g *deadlineGroup) governed() (attrs map[int32]unix.SchedAttr, late map[int32]bool, err error) {
	tids, err := g.backend.threadsOf(g.files)
	if err != nil {
		return nil, nil, fmt.Errorf("listing the threads of %s: %w", g.server.Cgroup, asGone(err))
	}
	processes, err := g.processes()
	if err != nil {
		return nil, nil, err
	}
	attrs, leaders, chosen := g.sort(tids, processes)
	if chosen {
		return attrs, nil, nil
	}
	late = map[int32]bool{}
	first := len(attrs) == 0
	for tid, a := range leaders {
		if first || g.late[tid] {
			attrs[tid] = a
		} else {
			late[tid] = true
		}
	}
	return attrs, late, nil
}

// sort threads into those that are governed, or made real-time by the application, and the first ones of processes among
// the others. Chosen: the application has made some real-time.
func (g *deadlineGroup) sort(tids []int32, processes map[int32]bool) (attrs, leaders map[int32]unix.SchedAttr, chosen bool) {
	attrs, leaders = map[int32]unix.SchedAttr{}, map[int32]unix.SchedAttr{}
	before := g.recorded()
	for _, tid := range tids {
		var a unix.SchedAttr
		if g.backend.kernel.attr(int(tid), &a) != nil {
			continue
		}
		t, ours := g.seen[tid]
		if !ours {
			t.ordinary, ours = g.wasOrdinary(tid, a, before)
		}
		if ours || urgent(a.Policy) {
			attrs[tid] = a
			chosen = chosen || !t.ordinary
		} else if processes[tid] {
			leaders[tid] = a
		}
	}
	return attrs, leaders, chosen
}

// recorded are the threads that the journal has for the group, by number.
func (g *deadlineGroup) recorded() map[int32]record {
	out := map[int32]record{}
	for _, r := range g.backend.journal.of(g.server.Cgroup) {
		if r.Thread != 0 && r.Inode == g.id() && r.By == Deadline {
			out[int32(r.Thread)] = r
		}
	}
	return out
}

// wasOrdinary says that a thread is, or was before we governed it: of one that the process before this one governed the journal knows. It
// need not be a deadline thread now, as that may have ended while it was free.
func (g *deadlineGroup) wasOrdinary(tid int32, a unix.SchedAttr, before map[int32]record) (ordinary, ours bool) {
	if r, ok := before[tid]; ok && g.backend.tellsOf(r) {
		return !urgent(r.Attr.Policy), true
	}
	return !urgent(a.Policy), false
}

func (g *deadlineGroup) processes() (map[int32]bool, error) {
	text, err := g.read("cgroup.procs")
	if err != nil {
		return nil, fmt.Errorf("listing the processes of %s: %w", g.server.Cgroup, asGone(err))
	}
	pids, _ := parseProcesses(text) // nothing can be done to others
	out := make(map[int32]bool, len(pids))
	for _, pid := range pids {
		out[int32(pid)] = true
	}
	return out, nil
}

// tend gives every governed thread its share of the budget. Nothing is changed when all have it.
func (g *deadlineGroup) tend() error {
	attrs, late, err := g.governed()
	if err != nil {
		return err
	}
	g.late = late
	want := g.share(len(attrs))
	var wrong []int32
	for tid, a := range attrs {
		if !sameDeadline(a, want) && g.seen[tid].freed == 0 {
			wrong = append(wrong, tid)
		}
	}
	slices.Sort(wrong)
	if err := g.remember(wrong, attrs); err != nil {
		return err
	}
	g.follow(attrs) // who is watched is on record
	if len(wrong) == 0 {
		return nil
	}
	// What shrinks goes first, so that the sum never exceeds what was admitted.
	slices.SortFunc(wrong, func(a, b int32) int {
		return cmp.Or(cmp.Compare(attrs[b].Runtime, attrs[a].Runtime), cmp.Compare(a, b))
	})
	return g.convert(wrong, want)
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
			faults = append(faults, fmt.Errorf("making thread %d of %s a deadline thread: %w: it needs CAP_SYS_NICE, and the "+
				"thread must not have narrowed its own affinity", tid, s.Cgroup, err))
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
		if _, ok := g.seen[tid]; !ok {
			ordinary, _ := g.wasOrdinary(tid, a, before)
			g.seen[tid] = trace{ordinary: ordinary}
		}
	}
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
