package governor

import (
	"errors"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// leastRestore is how often squeezed servers are given something back at most.
const leastRestore = int64(10 * time.Millisecond)

// makeRoom squeezes victims in the plan's order until that much will be free, for a server that is more critical
// than they; nil is for every server. The room is there after the victims' deadlines.
func (c *Core) makeRoom(raised *server, missing rt.PPM, set Setter) {
	for _, i := range c.victims {
		if missing <= 0 {
			return
		}
		v := &c.servers[i]
		if !v.givesWayTo(raised) {
			continue
		}
		before := v.charged
		c.squeeze(v, v.affords(before-missing, c.options.GranularityUs), set)
		missing -= before - v.charged
	}
}

// givesWayTo says that a victim is squeezed for a server; nil is for every server.
func (v *server) givesWayTo(raised *server) bool {
	return raised == nil || v.criticality < raised.criticality
}

// squeeze cuts a budget, not below its floor. It says whether the Setter agreed; a write that is refused is left to the next
// server that needs room. A group that is gone has no budget.
func (c *Core) squeeze(v *server, to int64, set Setter) bool {
	to = max(min(to, v.want()), v.floor)
	if v.raised > 0 || v.budget <= to {
		return true
	}
	if err := c.put(v, to, set); err != nil {
		return errors.Is(err, ErrGone)
	}
	c.cut(v, to)
	return true
}

// cut takes down that a server has, or will have, less than it was granted.
func (c *Core) cut(v *server, to int64) {
	if to >= v.granted {
		return
	}
	if v.squeezed == 0 {
		c.squeezes++
		v.order = c.squeezes
	}
	v.squeezed = to
	v.squeezedTimes++
	c.restoreAt = c.bandwidth.now + c.restoreEvery(v)
}

func (c *Core) restoreEvery(v *server) int64 {
	if c.options.RestoreEvery > 0 {
		return c.options.RestoreEvery
	}
	return max(v.period, leastRestore)
}

// restore gives the server that was squeezed last as much back as there is room for, when no server waits for a raise.
// Where the kernel refuses that, it tries the one squeezed before it: a single refusal keeps no other server down.
func (c *Core) restore(set Setter) {
	if c.restoreAt > c.bandwidth.now || c.wanted() || c.switched() != nil {
		return
	}
	for v := c.lastSqueezed(); v != nil; v = c.lastSqueezed() {
		if c.release(v, set) {
			return
		}
	}
}

// release gives a victim something back, if there is room. False: the kernel refused it, and it is not tried again at once.
func (c *Core) release(v *server, set Setter) bool {
	since := v.released(v.over.last, c.bandwidth.now)
	room := v.charged + c.bandwidth.owns(v.serial) + c.limit - c.bandwidth.most(since)
	to := min(v.granted, v.affords(room, c.options.GranularityUs))
	if to < v.budget+min(c.leastGain(), v.granted-v.budget) {
		return true
	}
	if c.putSince(v, to, since, set) != nil {
		return false
	}
	c.restoreAt = c.bandwidth.now + c.restoreEvery(v)
	v.squeezed = to
	if to >= v.granted {
		v.squeezed = 0
	}
	return true
}

// lastSqueezed is the server that was squeezed last, of those whose budget may be written now; nil when no server is
// squeezed.
func (c *Core) lastSqueezed() *server {
	var last *server
	for i := range c.servers {
		if v := &c.servers[i]; v.squeezed > 0 && !v.Leaving && v.retryAt <= c.bandwidth.now && (last == nil || v.order > last.order) {
			last = v
		}
	}
	return last
}

// wanted: a server waits for a raise.
func (c *Core) wanted() bool {
	for i := range c.servers {
		if c.servers[i].wants {
			return true
		}
	}
	return false
}
