package governor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Load makes these the servers of the core. What is known of a server goes on by its ID; one that is gone keeps
// its bandwidth until its deadline. Budgets that shrink are written first, then those that grow and
// have room; the others wait for Tick. What is in force already is not written. A fault is told for
// each server that the table asks too much for, or whose budget the Setter refused.
func (c *Core) Load(servers []Server, plan table.Plan, now int64, set Setter) []Fault {
	c.advance(now)
	faults := c.take(servers, plan, c.bandwidth.now)
	c.plan(plan)
	faults = append(faults, c.grant()...)
	c.adopt()
	c.inherit()
	c.keepDown(set)
	for i := range c.servers {
		if s := &c.servers[i]; s.budget > s.want() {
			_ = c.put(s, s.want(), set) // Tick tries again
		}
	}
	c.relieve(set)
	for i := range c.servers {
		s := &c.servers[i]
		if err := c.grow(s, set); err != nil {
			faults = append(faults, Fault{Slot: s.Slot, Err: &UnsetError{s.want(), err}})
		}
	}
	return faults
}

// take replaces the servers.
func (c *Core) take(specs []Server, plan table.Plan, now int64) []Fault {
	var faults []Fault
	former := make(map[string]server, len(c.servers))
	for _, s := range c.servers {
		former[s.ID] = s
	}
	next, slots := make([]server, 0, len(specs)), 0
	for _, spec := range specs {
		s, known := former[spec.ID]
		known = known && s.same(spec)
		switch us, told := c.inForce[spec.Slot]; {
		case !known:
			s = c.newServer(spec.Slot, now)
		case told:
			s.returned(us, now)
		}
		if err := s.specify(spec, plan); err != nil {
			faults = append(faults, Fault{Slot: spec.Slot, Err: err})
			continue
		}
		if known {
			delete(former, spec.ID)
		}
		c.came(&s)
		next, slots = append(next, s), max(slots, spec.Slot+1)
	}
	for _, s := range former {
		c.gone(&s)
	}
	slices.SortFunc(next, func(a, b server) int {
		return cmp.Or(cmp.Compare(b.criticality, a.criticality), cmp.Compare(a.ID, b.ID))
	})
	c.servers, c.index = next, make([]int, slots)
	for i := range next {
		c.index[next[i].Slot] = i + 1
	}
	clear(c.inForce)
	return faults
}

// newServer is a server that was not here, with what its group has in force.
func (c *Core) newServer(slot int, now int64) server {
	c.serials++
	return server{serial: c.serials, since: now, budget: c.inForce[slot]}
}

// returned takes back a server that was to leave and did not: its room is its own still. If its raise was taken meanwhile, it
// needs another. Its overruns are counted anew, as those of a server that leaves.
func (s *server) returned(us, now int64) {
	if us < s.budget {
		s.raised = 0
	}
	s.budget, s.since, s.overruns = us, now, 0
}

// plan takes over the bounds of a plan.
func (c *Core) plan(p table.Plan) {
	c.limit, c.maxRaised = min(rt.PPM(p.ThresholdPpm), c.options.Capacity), p.MaxRaised
	if p.ThresholdPpm <= 0 {
		c.limit = min(rt.MaxCapacity, c.options.Capacity)
	}
	c.holds = c.promiseAll() <= c.limit
	c.modeSwitch = !c.options.EDF && p.MaxRaised <= 0 && len(p.Squeeze) > 0
	for i := range c.servers {
		c.planServer(&c.servers[i])
	}
	c.listVictims(p.Squeeze)
}

// promiseAll reckons what the plan promises. A raise of criticality Low that does not fit beside all else is struck out: the plan may have reckoned
// with more of the core than there is, or a caller asks for more than the plan. The next Tick gives back one that is in force, once the kernel has not
// refused what was asked for. Load does so where that needs the room.
func (c *Core) promiseAll() rt.PPM {
	all, granularity := rt.PPM(0), c.options.GranularityUs
	for i := range c.servers {
		s := &c.servers[i]
		s.kept, s.struck = s.keeps(), false
		s.granted = s.LeastUs
		switch {
		case s.Leaving:
		case s.criticality == rt.Low:
			all += s.charge(s.granted, granularity)
		default:
			all += s.charge(s.promise(), granularity)
		}
	}
	for i := range c.servers {
		s := &c.servers[i]
		if s.criticality != rt.Low || s.Leaving || s.RaiseToUs <= s.granted {
			continue
		}
		if step := s.charge(s.promise(), granularity) - s.charge(s.granted, granularity); all+step <= c.limit {
			all += step
		} else {
			s.RaiseToUs, s.struck = 0, s.raised > 0 || s.wasReserved && s.budget > s.granted
			s.mayEscalate = s.struck
		}
	}
	return all
}

// planServer takes over what a plan means for a server.
func (c *Core) planServer(s *server) {
	s.payable = c.holds && !s.Limited && s.RaiseToUs > s.granted
	s.paid = s.payable && s.paid
	s.paid = s.paid && c.due(s, s.budget) <= s.charged // more than before must find room
	if s.wasReserved && !s.reserved() && s.budget > s.granted {
		s.raised = s.budget // given back when it is clean, as any raise
	}
	s.raised = min(s.raised, s.HighUs)
	if !s.mayEscalate {
		s.raised = 0 // it was another's criticality
	}
	s.floor = 0
}

// promise is the budget that the plan counts with.
func (s *server) promise() int64 {
	if s.Limited {
		return s.granted
	}
	return max(s.granted, s.RaiseToUs)
}

// listVictims finds those who give way. A budget that the table asks for above low is never cut.
func (c *Core) listVictims(squeezes []table.Squeeze) {
	c.victims = c.victims[:0]
	for _, q := range squeezes {
		for i := range c.servers {
			if s := &c.servers[i]; s.ID == q.ID && !s.Leaving && s.LeastUs <= s.LowUs && s.floor == 0 && q.FloorUs > 0 {
				s.floor = min(q.FloorUs, s.LowUs)
				c.victims = append(c.victims, i)
			}
		}
	}
	for i := range c.servers {
		s := &c.servers[i]
		if s.squeezed >= s.granted || s.LeastUs > s.LowUs {
			s.squeezed = 0
		}
		if s.charged == 0 && s.gaveWay(s.granted) {
			s.kept = s.granted
		}
	}
}

// grant decides what of the table fits when no server is raised or squeezed. What is in force stays, or was before it
// gave way to a raise; then the most critical servers come first. Bandwidth that is only held, or of servers that leave,
// does not count: it will be free.
func (c *Core) grant() []Fault {
	var faults []Fault
	total := rt.PPM(0)
	for i := range c.servers {
		if s := &c.servers[i]; !s.Leaving {
			total += s.charge(min(s.kept, s.granted), c.options.GranularityUs)
		}
	}
	for _, inForce := range [...]bool{true, false} {
		for i := range c.servers {
			s := &c.servers[i]
			if s.Leaving || s.kept > 0 != inForce {
				continue
			}
			has, need := s.charge(min(s.kept, s.granted), c.options.GranularityUs), s.charge(s.granted, c.options.GranularityUs)
			if rest := total - has; need > has && rest+need > c.limit {
				faults = append(faults, Fault{Slot: s.Slot, Err: fmt.Errorf(
					"core %d: a budget of %d us needs %d ppm, %d of %d ppm are promised", s.Core, s.granted, need, rest, c.limit)})
				s.granted = c.lesser(s, c.limit-rest)
				need = s.charge(s.granted, c.options.GranularityUs)
			}
			total += need - has
			if s.raised <= s.granted {
				s.raised = 0
			}
		}
	}
	return faults
}

// lesser is what a server gets that cannot have what the table asks for: its low budget where there is room. Else it
// gets what it was raised to, so that it is not cut for a less critical server that has come; else what it has, or had
// before it gave way.
func (c *Core) lesser(s *server, room rt.PPM) int64 {
	for _, us := range [...]int64{s.LowUs, min(max(s.budget, s.kept), s.granted)} {
		if s.charge(us, c.options.GranularityUs) <= room {
			return us
		}
	}
	return min(s.kept, s.granted)
}

// adopt takes the budgets that are in force into the account: those of new servers, and what others have promised or
// freed by their new entries.
func (c *Core) adopt() {
	now := c.bandwidth.now
	for i := range c.servers {
		s := &c.servers[i]
		s.paid = s.paid || s.payable && s.budget >= s.RaiseToUs
		if s.charged == 0 && s.budget > s.want() && s.mayEscalate {
			s.raised = min(s.budget, s.HighUs)
			s.raisedAt = now
		}
		if s.charged == 0 && s.gaveWay(s.want()) {
			s.squeezed = s.budget // by an earlier agent
			s.order, c.squeezes = c.squeezes+1, c.squeezes+1
		}
		came := s.charged == 0
		c.account(s, s.released(s.over.last, now))
		c.assertFirst(s, came)
	}
	c.begun = c.begun || len(c.servers) > 0
}

// inherit keeps what the core has beside the budgets in force for the servers to which an earlier agent promised it,
// until no period of then is under way. Where nothing was in force there was no such agent.
func (c *Core) inherit() {
	if c.loaded || c.options.Started == 0 || len(c.servers) == 0 {
		return
	}
	c.loaded = true
	until := int64(0)
	for i := range c.servers {
		if s := &c.servers[i]; s.charged > 0 {
			until = max(until, s.deadline(c.options.Started))
		}
	}
	if until <= c.bandwidth.now {
		return // no budget was in force, or that was long ago
	}
	reserve(&c.bandwidth, c.limit, until)
	reserve(&c.windows, rt.PPM(c.maxRaised), until)
}

// reserve holds what an account has left, for no server.
func reserve(a *account, limit rt.PPM, until int64) {
	if rest := limit - a.sum; rest > 0 {
		a.sum += rest
		a.letGo(0, rest, until)
	}
}

// relieve frees what is promised beyond the limit since the core or the plan shrank, or servers came for which
// the table has room: victims are squeezed, then raises are given back, the least critical first. So are those of Limited
// servers beyond the plan's windows.
func (c *Core) relieve(set Setter) {
	c.makeRoom(nil, c.missing(), set)
	for i := len(c.servers) - 1; i >= 0; i-- {
		s := &c.servers[i]
		if s.raised > 0 && !s.Leaving && (c.missing() > 0 || s.window && c.crowded()) {
			c.giveBack(s, set)
		}
	}
}

// beyond is what will be promised beyond the limit when all holds have ended.
func (c *Core) beyond() rt.PPM { return c.bandwidth.sum - c.bandwidth.held - c.limit }

// excess is that when all have gone who leave, too.
func (c *Core) excess() rt.PPM {
	excess := c.beyond()
	for i := range c.servers {
		if s := &c.servers[i]; s.Leaving {
			excess -= s.charged
		}
	}
	return excess
}

// missing is what the core lacks to give every server what the table grants.
func (c *Core) missing() rt.PPM {
	missing := c.excess()
	for i := range c.servers {
		if s := &c.servers[i]; !s.Leaving && s.budget < s.least() {
			missing += c.due(s, s.least()) - s.charged
		}
	}
	return missing
}

// grow gives a server the budget that it should have, or at least its low one, if there is room.
func (c *Core) grow(s *server, set Setter) error {
	if !s.waits() || s.retryAt > c.bandwidth.now {
		return nil
	}
	since := c.bandwidth.now
	if s.budget > 0 {
		since = s.released(s.over.last, since)
	}
	c.pay(s, since)
	to := s.want()
	if !c.fits(s, to, since) {
		to = min(s.LowUs, s.least())
	}
	if to <= s.budget || !c.fits(s, to, since) {
		return nil
	}
	return c.putSince(s, to, since, set)
}

// waits: it has not got what the table and the plan promise.
func (s *server) waits() bool { return !s.Leaving && (s.budget < s.want() || s.payable && !s.paid) }

// pay promises a server's raise from now on, if there is room.
func (c *Core) pay(s *server, since int64) {
	if !s.payable || s.paid {
		return
	}
	s.paid = true
	if !c.fits(s, max(s.budget, s.want()), since) {
		s.paid = false
		return
	}
	c.granted(s, since)
}
