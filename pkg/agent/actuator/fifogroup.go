package actuator

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// fifoGroup is a group whose budget is enforced by changing the policy of its threads.
type fifoGroup struct {
	backend *fifo
	*anchor
	gate
	hot      *hands
	intent   atomic.Int64
	priority atomic.Int32
	// phase counts Throttle and Replenish; the policies are taken while it is odd.
	phase atomic.Uint32
	// crowded: the group had more than fifoThreads. Its threads are ordinary ones from then on.
	crowded atomic.Bool
	// recorded: the journal has what the group's first thread had. A thread that gets our
	// policy before that would be taken to have brought it.
	recorded atomic.Bool
	// met is what the hot side changed before any other part saw it.
	met notes
	// Slow side, under the machine's lock.
	core     int
	periodUs int64
	known    map[int32]bool
}

// hands are what changes threads: scratch memory for one side, so that nothing is allocated on the hot one.
type hands struct {
	kernel kernel
	tids   []int32
	buf    []byte
	attr   unix.SchedAttr
}

// fifoThreads is how many threads a group may have. Each costs about 1 us twice in every period, on the core and above
// all its containers: what a container does to itself must not become what it does to others.
const fifoThreads = 128

// handsThreads is how many threads of a group the hot side reaches at once: all, until one turns out to be crowded.
const handsThreads = 1024

// errCrowded is why a group is no longer real-time. It is for good: a group that could come back by ending threads could go on
// and on taking the core from others for the time until that is noticed.
var errCrowded = fmt.Errorf("it has had more than %d threads, which is all that backend fifo reaches in time: its threads are "+
	"ordinary ones until the container is started again; have it use fewer threads, or a node with backend rtgroup", fifoThreads)

func newHands(k kernel) *hands {
	return &hands{kernel: k, tids: make([]int32, 0, handsThreads), buf: make([]byte, 4096)}
}

// give a thread a policy and priority. HOT.
func (h *hands) give(tid int32, policy, priority uint32) error {
	h.attr = unix.SchedAttr{Policy: policy, Priority: priority}
	err := h.kernel.setAttr(int(tid), &h.attr)
	if err == unix.ESRCH { //nolint:errorlint // The kernel's bare error number, on the hot path.
		return nil
	}
	return err
}

// ID of the group in the hierarchy of the backend's identity.
func (g *fifoGroup) ID() uint64 { return g.id() }

// Set records the budget: it is raised by not calling Throttle. HOT.
func (g *fifoGroup) Set(budgetUs int64) error {
	g.intent.Store(budgetUs)
	return nil
}

// Resize: nothing is sized for the high budget.
func (g *fifoGroup) Resize(int64) error { return nil }

// Throttle makes ordinary threads of all. A thread made meanwhile by one that was not reached yet inherits
// its policy, so the list is read again until it has none of them. HOT.
func (g *fifoGroup) Throttle() error {
	if !g.enter() {
		return ErrGone
	}
	defer g.leave()
	if g.crowded.Load() {
		return errCrowded
	}
	if g.phase.Load()&1 == 0 {
		g.phase.Add(1)
	}
	return g.sweepHot(unix.SCHED_NORMAL, 0)
}

// Replenish makes all real-time again, once it is on record what they were: before that Check does. HOT.
func (g *fifoGroup) Replenish() error {
	if !g.enter() {
		return ErrGone
	}
	defer g.leave()
	if g.crowded.Load() {
		return errCrowded
	}
	if g.phase.Load()&1 == 1 {
		g.phase.Add(1)
	}
	if !g.recorded.Load() {
		return nil
	}
	return g.sweepHot(unix.SCHED_FIFO, uint32(g.priority.Load()))
}

// sweepHot gives all threads a policy, until a list has as many as the one before. HOT.
func (g *fifoGroup) sweepHot(policy, priority uint32) error {
	const rounds = 4
	var fault error
	for round, before := 0, -1; round < rounds && len(g.hot.tids) != before; round++ {
		if round > 0 {
			before = len(g.hot.tids)
		}
		tids, err := g.list(g.hot.tids, g.hot.buf)
		if err != nil {
			return err
		}
		g.hot.tids = tids
		if len(tids) > fifoThreads {
			g.expel()
			policy, priority = unix.SCHED_NORMAL, 0
		}
		for _, tid := range tids {
			if err := g.turn(tid, policy, priority); err != nil && fault == nil {
				fault = err
			}
		}
	}
	return fault
}

// turn a thread, once it is noted what it has of its own. One that is ordinary already is not made so: its nice value is its own. HOT.
func (g *fifoGroup) turn(tid int32, policy, priority uint32) error {
	a := &g.hot.attr
	err := g.hot.kernel.attr(int(tid), a)
	if err == unix.ESRCH { //nolint:errorlint // The kernel's bare error number, on the hot path.
		return nil
	}
	if err == nil && (a.Policy == policy && a.Priority == priority || policy == unix.SCHED_NORMAL && !urgent(a.Policy)) {
		return nil
	}
	inherited := g.recorded.Load() && a.Policy == unix.SCHED_FIFO && a.Priority == uint32(g.priority.Load())
	if err == nil && !ordinary(a) && !inherited {
		g.met.note(tid, a)
	}
	return g.hot.give(tid, policy, priority)
}

// expel makes the group's threads ordinary ones for good: those that the hot side does not reach at the next Check. HOT.
func (g *fifoGroup) expel() {
	g.crowded.Store(true)
	if g.phase.Load()&1 == 0 {
		g.phase.Add(1)
	}
}

// SetPriority among the servers of the core, 1 to 99.
func (g *fifoGroup) SetPriority(priority int) error {
	if priority < 1 || priority > 99 {
		return fmt.Errorf("priority %d; want 1 to 99", priority)
	}
	if g.priority.Load() == int32(priority) {
		return nil
	}
	g.backend.mu.Lock()
	defer g.backend.mu.Unlock()
	if err := g.backend.same(g, g.anchor); err != nil {
		return err
	}
	if err := g.backend.journal.keep(given(g.path, g.id(), uint32(priority))); err != nil {
		return err
	}
	g.priority.Store(int32(priority))
	clear(g.known) // a change of ours is no drift
	_, err := g.tend()
	return err
}

// tend journals threads that are new and gives every one the policy of the phase; it returns how many that
// it had seen before had another.
func (g *fifoGroup) tend() (drifted int, err error) {
	listed := g.met.end.Load()
	tids, err := g.backend.threadsOf(g.files)
	if err != nil {
		return 0, fmt.Errorf("listing the threads of %s: %w", g.path, asGone(err))
	}
	if len(tids) > fifoThreads && !g.ours() {
		return 0, fmt.Errorf("group %s: %w", g.path, errCrowded) // none was changed by us
	}
	if len(tids) > fifoThreads {
		g.expel()
	}
	seen := g.look(tids, listed)
	remembered := g.remember(seen)
	if g.crowded.Load() { // what others have of the core does not wait for the journal
		return 0, errors.Join(fmt.Errorf("group %s: %w", g.path, errCrowded), remembered, g.demoteAll(tids))
	}
	if remembered != nil {
		return 0, remembered
	}
	known := make(map[int32]bool, len(seen.attrs))
	var faults []error
	for tid, a := range seen.attrs {
		wrong, err := g.align(tid, a)
		faults = append(faults, err)
		if known[tid] = true; wrong && g.known[tid] {
			drifted++
		}
	}
	g.known = known
	return drifted, errors.Join(faults...)
}

// demoteAll makes ordinary threads of the real-time ones, also of those that such a thread has made meanwhile.
func (g *fifoGroup) demoteAll(tids []int32) error {
	const rounds = 8
	k := g.backend.kernel
	for range rounds {
		left := 0
		for _, tid := range tids {
			var a unix.SchedAttr
			if k.attr(int(tid), &a) != nil || a.Policy != unix.SCHED_FIFO && a.Policy != unix.SCHED_RR {
				continue
			}
			left++
			if err := g.backend.give(tid, unix.SCHED_NORMAL, 0); err != nil {
				return g.backend.explain(g.path, tid, err)
			}
		}
		if left == 0 {
			return nil
		}
		var err error
		if tids, err = g.backend.threadsOf(g.files); err != nil {
			return fmt.Errorf("listing the threads of %s: %w", g.path, asGone(err))
		}
	}
	return fmt.Errorf("group %s: it makes threads faster than they can be made ordinary ones", g.path)
}

// align gives a thread the policy of the phase, again when the phase changed meanwhile: the hot side
// may have passed this thread before. It says whether the thread had another.
func (g *fifoGroup) align(tid int32, a unix.SchedAttr) (wrong bool, err error) {
	const tries = 8
	for range tries {
		phase := g.phase.Load()
		policy, priority := uint32(unix.SCHED_FIFO), uint32(g.priority.Load())
		if phase&1 == 1 {
			policy, priority = unix.SCHED_NORMAL, 0
		}
		if a.Policy != policy || a.Priority != priority {
			wrong = true
			if err := g.backend.give(tid, policy, priority); err != nil {
				return false, g.backend.explain(g.path, tid, err)
			}
			a.Policy, a.Priority = policy, priority
		}
		if g.phase.Load() == phase {
			return wrong, nil
		}
		wrong = false // the phase explains the difference
	}
	return false, nil
}

// give is hands.give for the slow side.
func (b *fifo) give(tid int32, policy, priority uint32) error {
	return (&hands{kernel: b.kernel}).give(tid, policy, priority)
}

func (b *fifo) explain(group string, tid int32, err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("making thread %d of %s real-time: %w: it needs CAP_SYS_NICE, and where the kernel has "+
			"real-time groups the thread's cpu group must have a budget", tid, group, err)
	}
	return fmt.Errorf("changing the policy of thread %d of %s: %w", tid, group, err)
}

// Read what was recorded, and the cores.
func (g *fifoGroup) Read() (Budget, []int, error) {
	b := g.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.same(g, g.anchor); err != nil {
		return Budget{}, nil, err
	}
	cores, err := g.cores()
	return Budget{g.intent.Load(), g.periodUs}, cores, err
}

// Move to another core.
func (g *fifoGroup) Move(core int) error {
	b := g.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.same(g, g.anchor); err != nil {
		return err
	}
	if err := b.place(g.path, core); err != nil {
		return errors.Join(fmt.Errorf("moving %s to core %d: %w", g.path, core, err), b.place(g.path, g.core))
	}
	g.core = core
	return nil
}

// Check finds new threads, and puts right what something else changed.
func (g *fifoGroup) Check() (drift []string, err error) {
	b := g.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.same(g, g.anchor); err != nil {
		return nil, err
	}
	drift, err = b.replaced(g.anchor, g.core)
	n, tended := g.tend()
	if n > 0 {
		drift = append(drift, fmt.Sprintf("%d threads of %s had another policy", n, g.path))
	}
	return drift, errors.Join(err, tended)
}

// Threads in the group.
func (g *fifoGroup) Threads() (all, realtime int, err error) {
	return g.backend.threads(g, g.anchor)
}

// Close lets go of the group. With restore every thread gets its policy back; without, threads stay as
// they are.
func (g *fifoGroup) Close(restore bool) error { return g.backend.closeGroup(g.path, g, restore) }

func (g *fifoGroup) letGo() error {
	g.lock(g.backend.kernel.pause)
	return errors.Join(g.tell(), g.anchor.letGo())
}
