package fastpath

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Ring is a core's stream of events.
type Ring interface {
	// Next waits for an event. It returns ebpf.ErrDeadline when none came in time, os.ErrClosed after Close.
	Next(*ebpf.Event) error
	// SetDeadline is until when Next waits at most, by the clock of Options.Now.
	SetDeadline(at int64)
	// Hold has Next wait without the Go runtime knowing, so that the world cannot be stopped meanwhile.
	Hold(on bool)
	// Wake has Next return ebpf.ErrDeadline.
	Wake()
	Close() error
}

// place is a server on a core: what its thread needs to act for it.
type place struct {
	group    actuator.Group
	enforcer actuator.Enforcer // nil where the kernel enforces
	config   *ebpf.Config
	// carries: what is used beyond a budget is taken from the windows to come.
	carries bool
	// stoppedUntil is when the window ends for the rest of which we stopped the server; 0: it is not stopped. changes is how often it
	// was stopped or let go.
	stoppedUntil int64
	changes      uint64
	// stoppedAt is when we stopped it last. undone is how often it was found real-time after that, less what was forgotten since.
	stoppedAt int64
	undone    uint64
	// held: its budget is the slow half's for now.
	held bool
	// answeredNs is the use in the window answeredIn that was answered last: an event that tells of no more is of the same overrun.
	answeredIn, answeredNs uint64
}

// core is one core with its servers. Its thread and the slow half share it under mu.
type core struct {
	id   int
	lead int64 // ns
	now  func() int64
	ring Ring
	// turned is when the thread last came round.
	turned atomic.Int64

	mu      sync.Mutex
	gov     *governor.Core
	places  [table.MaxServers]*place
	gone    [table.MaxServers]bool // slots that lost their place with their group
	active  []int                  // slots that have a place
	halted  []*place               // of those, the servers that we have stopped
	touched []int                  // of those, whose budgets were set since the last follow
	next    int64                  // when the governor wants its next tick; 0: never
	detect  table.Histogram
	react   table.Histogram
	events  uint64
	samples *samples
}

// idleWait is how long the thread waits for an event at most when nothing is due: so often it looks
// whether it is to end.
const idleWait = int64(100 * time.Millisecond)

// run is the life of a core's thread. It ends when the ring is closed.
func (c *core) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set unix.CPUSet
	set.Set(c.id)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning the reader to core %d: %w", c.id, err)
	}
	var event ebpf.Event
	for {
		c.ring.SetDeadline(c.due())
		err := c.ring.Next(&event)
		switch {
		case err == nil:
			c.handle(&event)
		case errors.Is(err, ebpf.ErrDeadline):
			c.tick()
		case errors.Is(err, os.ErrClosed):
			return nil
		default:
			return fmt.Errorf("reading the ring of core %d: %w", c.id, err)
		}
	}
}

// leastWait is how long it waits at least, though something be due: what a stall of the machine has made late, or takes long itself,
// must not have the core to itself. Events are heard meanwhile.
const leastWait = int64(500 * time.Microsecond)

// due is until when to wait for an event at most.
func (c *core) due() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.turned.Store(now)
	until := now + idleWait
	if c.next != 0 {
		until = min(until, c.next)
	}
	for _, p := range c.halted {
		until = min(until, p.late())
	}
	return max(now+leastWait, until)
}

// handle is the fast path.
func (c *core) handle(e *ebpf.Event) {
	woken := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
	slot := int(e.Slot)
	if slot >= len(c.places) {
		return
	}
	p := c.places[slot]
	if p == nil || p.config.Generation != e.Generation {
		return // of a former holder of the slot
	}
	switch e.Kind {
	case ebpf.KindAlarm:
		c.alarm(e, p, woken)
	case ebpf.KindEnd:
		if p.usedUp(e) {
			c.end(e, p, woken)
		}
	case ebpf.KindThrottled:
		c.throttled(e, p, woken)
	case ebpf.KindAgain:
		c.again(e, p, woken)
	case ebpf.KindWindow:
		c.letGo(p)
	case ebpf.KindClean:
		c.gov.Clean(slot, c.now(), c)
	}
	c.letGoOfLate() // events may come without a pause
	c.follow(slot)
	c.next = c.gov.Next() // a raise that was denied waits, what was squeezed is to be given back
	if c.next != 0 && c.next <= c.now() {
		c.tickLocked()
	}
}

// throttled answers a server that its kernel has stopped.
func (c *core) throttled(e *ebpf.Event, p *place, woken int64) {
	switch {
	case p.owes(e):
		outcome := c.gov.Owes(int(e.Slot), int64(e.Window), int64(e.UsedNs), c.now(), c)
		c.answered(e, p, outcome, woken, 0)
	case p.usedUp(e):
		outcome := c.gov.End(int(e.Slot), int64(e.Window), c.now(), c)
		c.answered(e, p, outcome, woken, 0)
	}
}

// alarm answers a budget that is about to end.
func (c *core) alarm(e *ebpf.Event, p *place, woken int64) {
	switch {
	case p.answeredIn == e.Window && e.UsedNs <= p.answeredNs:
		return // with its end
	case p.owes(e):
		c.throttled(e, p, woken) // or soon will be; the fast path could not have answered the instant when that budget ended
		return
	}
	lead := int64(atomic.LoadUint64(&p.config.BudgetNs)) - int64(atomic.LoadUint64(&p.config.AlarmNs))
	outcome := c.gov.Alarm(int(e.Slot), int64(e.Window), c.now(), c)
	c.detect.Add(int64(e.Detected - e.Instant))
	c.answered(e, p, outcome, woken, lead)
}

func raised(o governor.Outcome) bool {
	return o.Kind == governor.Raised || o.Kind == governor.Partial
}

// answered remembers an event that was answered, and how long a raise took: also one that came after the end, or so late that
// the server owes whole windows.
func (c *core) answered(e *ebpf.Event, p *place, outcome governor.Outcome, woken, lead int64) {
	p.answeredIn, p.answeredNs = e.Window, e.UsedNs
	if !raised(outcome) || c.gov.State(int(e.Slot)).Reserved {
		return // nothing was written
	}
	written := c.now()
	c.react.Add(written - int64(e.Instant))
	c.samples.add(sample{
		slot: e.Slot, generation: e.Generation, instant: int64(e.Instant), detected: int64(e.Detected), woken: woken, written: written, lead: lead,
	})
}

// usedUp says that an event tells of the budget that is in force now. One that waited while the budget was raised
// tells of the former; one of a group around the server tells nothing of the server's budget.
func (p *place) usedUp(e *ebpf.Event) bool { return e.UsedNs >= atomic.LoadUint64(&p.config.BudgetNs) }

// owes says that a server will be stopped for whole windows to come, in which what it used beyond its budget is taken
// from theirs.
func (p *place) owes(e *ebpf.Event) bool {
	return p.carries && e.UsedNs >= 2*atomic.LoadUint64(&p.config.BudgetNs)
}

// tick lets the governor do what time makes due.
func (c *core) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
}

func (c *core) tickLocked() {
	c.letGoOfLate()
	c.next = c.gov.Tick(c.now(), c)
	c.followAll()
}

// errGone says it to the governor, too.
var errGone = fmt.Errorf("%w: %w", governor.ErrGone, actuator.ErrGone)

// errAway: the server is on its way to another core, or out of the table. What it had here may be in force until the next load.
var errAway = errors.New("the server is leaving this core")

// Set implements governor.Setter: it puts a budget in force.
func (c *core) Set(slot int, budgetUs int64) error {
	p := c.places[slot]
	switch {
	case c.gone[slot]:
		return errGone
	case p == nil || p.held:
		return errAway
	}
	if err := p.group.Set(budgetUs); err != nil {
		if errors.Is(err, actuator.ErrGone) {
			return errGone
		}
		return err
	}
	atomic.StoreUint64(&p.config.BudgetNs, uint64(budgetUs)*1000)
	c.touched = append(c.touched, slot) // it has room for all
	return nil
}

// follow tells the programs what the governor wants to hear of a server, and of those that were squeezed or
// got their budgets back for it.
func (c *core) follow(slot int) {
	c.watch(c.places[slot], c.gov.State(slot))
	for _, other := range c.touched {
		c.watch(c.places[other], c.gov.State(other))
	}
	c.touched = c.touched[:0]
}

// followAll does the same for all.
func (c *core) followAll() {
	for _, slot := range c.active {
		c.watch(c.places[slot], c.gov.State(slot))
	}
	c.touched = c.touched[:0]
}

func (c *core) watch(p *place, state governor.State) {
	flags := uint32(ebpf.FlagLive | ebpf.FlagJobs)
	if state.Alarmable {
		flags |= ebpf.FlagAlarm
	}
	if state.Raised {
		flags |= ebpf.FlagRaised
	}
	if p.enforcer != nil {
		flags |= ebpf.FlagEnforce
	}
	alarm := state.AlarmUs * 1000
	if !state.Highest && !state.Reserved {
		alarm -= c.leadFor(state.AlarmUs)
	}
	atomic.StoreUint64(&p.config.AlarmNs, uint64(alarm))
	atomic.StoreUint32(&p.config.Rearm, state.Rearm)
	atomic.StoreUint32(&p.config.Flags, flags)
}

// leadFor is the lead of a budget, in nanoseconds: of a small one, a quarter at most.
func (c *core) leadFor(budgetUs int64) int64 { return min(c.lead, budgetUs*1000/4) }

// state of a slot, for the slow half.
func (c *core) state(slot int) governor.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gov.State(slot)
}

// seen is when a server last ran, now while it does, 0 when it never did.
func seen(programs Programs, now func() int64) func(slot int) int64 {
	return func(slot int) int64 {
		state := programs.State(slot)
		if atomic.LoadUint32(&state.Running) > 0 {
			return now()
		}
		return int64(atomic.LoadUint64(&state.LastSeen))
	}
}

// put gives a slot its place, with the budget that its group has. A server that comes is not stopped.
func (c *core) put(slot int, p *place, budgetUs int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.letGo(p)
	c.places[slot], c.gone[slot] = p, false
	c.active = append(c.active, slot)
	c.halted = slices.Grow(c.halted, len(c.active)-len(c.halted)) // stopping a server allocates nothing
	c.gov.InForce(slot, budgetUs)
}

// hold keeps a slot's budget from the governor, or leaves it to that again, which tries once more what it was refused.
func (c *core) hold(slot int, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.places[slot]; p != nil {
		p.held = on
	}
}

// take takes a slot's place from it. A server that leaves is not stopped: the event that would let it go is void.
func (c *core) take(slot int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.letGo(c.places[slot])
	c.places[slot] = nil
	c.active = slices.DeleteFunc(c.active, func(s int) bool { return s == slot })
}
