package governor

import (
	"time"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// leastRestore is how often squeezed servers are given something back at most.
const leastRestore = int64(10 * time.Millisecond)

// makeRoom squeezes victims in the plan's order until that much will be free, for a server that is more critical
// than they; nil is for everybody. The room is there after the victims' deadlines.
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

// squeezeAll squeezes all victims that are less critical than a server as far as they may be.
func (c *Core) squeezeAll(raised *server, set Setter) {
	for _, i := range c.victims {
		if v := &c.servers[i]; v.givesWayTo(raised) {
			c.squeeze(v, 0, set)
		}
	}
}

// givesWayTo says that a victim is squeezed for a server; nil is for everybody.
func (v *server) givesWayTo(raised *server) bool {
	return raised == nil || v.criticality < raised.criticality
}

// squeeze cuts a budget, not below its floor. A write that is refused is left to the next who needs room.
func (c *Core) squeeze(v *server, to int64, set Setter) {
	to = max(min(to, v.want()), v.floor)
	if v.raised > 0 || v.budget <= to || c.put(v, to, set) != nil || to >= v.granted {
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

// restore gives the last who was squeezed as much back as there is room for, when nobody more critical waits for it.
func (c *Core) restore(set Setter) {
	v := c.lastSqueezed()
	if v == nil || c.restoreAt > c.bandwidth.now || v.retryAt > c.bandwidth.now || c.wanted() || c.modeSwitch && c.Raised() > 0 {
		return
	}
	since := v.released(v.over.last, c.bandwidth.now)
	room := v.charged + c.bandwidth.owns(v.serial) + c.limit - c.bandwidth.most(since)
	to := min(v.granted, v.affords(room, c.options.GranularityUs))
	if to < v.budget+min(c.leastGain(), v.granted-v.budget) || c.putSince(v, to, since, set) != nil {
		return
	}
	c.restoreAt = c.bandwidth.now + c.restoreEvery(v)
	v.squeezed = to
	if to >= v.granted {
		v.squeezed = 0
	}
}

// lastSqueezed is who was squeezed last; nil when nobody is.
func (c *Core) lastSqueezed() *server {
	var last *server
	for i := range c.servers {
		if v := &c.servers[i]; v.squeezed > 0 && (last == nil || v.order > last.order) {
			last = v
		}
	}
	return last
}

// wanted: somebody waits for a raise.
func (c *Core) wanted() bool {
	for i := range c.servers {
		if c.servers[i].wants {
			return true
		}
	}
	return false
}
