package fastpath

import (
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
)

// end answers a budget that is used up with work pending. Where the kernel does not stop the server, the fast path does.
func (c *core) end(e *ebpf.Event, p *place, woken int64) {
	if p.stoppedIn(e) { // its budget was changed meanwhile
		c.stop(e, p)
		return
	}
	outcome := c.gov.End(int(e.Slot), int64(e.Window), c.now(), c)
	c.answered(e, p, outcome, woken, 0)
	if p.enforcer != nil && !raised(outcome) {
		c.stop(e, p)
	}
}

// again stops a server that is real-time in a window for the rest of which we have stopped it. What the program saw before that was
// done is our own delay; and where we have not, the event that told of the end was lost.
func (c *core) again(e *ebpf.Event, p *place, woken int64) {
	if !p.stoppedIn(e) {
		if p.usedUp(e) && c.now() < int64(e.Window+p.config.PeriodNs) {
			c.end(e, p, woken)
		}
		return
	}
	if int64(e.Detected) > p.stoppedAt {
		p.undone = min(p.undone+1, mostUndone)
	}
	c.stop(e, p)
}

// mostUndone bounds how long a server that gave up undoing it is still taken for one that does: one is forgotten in a second, or a longer period.
const mostUndone = 300

func (p *place) stoppedIn(e *ebpf.Event) bool {
	return p.enforcer != nil && p.stoppedUntil == int64(e.Window+p.config.PeriodNs)
}

// stop a server for the rest of the window.
func (c *core) stop(e *ebpf.Event, p *place) {
	_ = p.enforcer.Throttle() // a group that has gone is found by the sweep
	if p.stoppedUntil == 0 {
		c.halted = append(c.halted, p)
	}
	p.changes++
	p.stoppedUntil, p.stoppedAt = int64(e.Window+p.config.PeriodNs), c.now()
}

// letGo lets a server that we stopped run again.
func (c *core) letGo(p *place) {
	if p.enforcer != nil {
		_ = p.enforcer.Replenish() // a group that has gone is found by the sweep
	}
	if p.stoppedUntil == 0 {
		return
	}
	p.stoppedUntil = 0
	p.changes++
	c.halted = slices.DeleteFunc(c.halted, func(o *place) bool { return o == p })
}

// lateBy is how long after its window a server that we stopped waits for the program that tells of the next one. The
// event may be lost.
const lateBy = int64(10 * time.Millisecond)

// late is when a server that we stopped has waited long enough.
func (p *place) late() int64 { return p.stoppedUntil + lateBy }

// letGoOfLate lets the servers run of whose next window the program did not tell.
func (c *core) letGoOfLate() {
	for i := len(c.halted) - 1; i >= 0; i-- { // letting go takes it out
		if p := c.halted[i]; c.now() >= p.late() {
			c.letGo(p)
		}
	}
}

// undone is how often the server of a slot was found real-time though we had stopped it, less so many that are forgotten now.
func (c *core) undone(slot int, forgotten uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.places[slot]
	if p == nil {
		return 0
	}
	p.undone -= min(p.undone, forgotten)
	return p.undone
}

// stopped says whether we have stopped the server of a slot, and how often that has changed.
func (c *core) stopped(slot int) (is bool, changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.places[slot]
	if p == nil {
		return false, 0
	}
	return p.stoppedUntil != 0, p.changes
}
