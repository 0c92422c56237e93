package governor

// Clean tells that a window of a slot begins after enough clean ones: the raise is given back if its dwell is
// over, and a fault is.
func (c *Core) Clean(slot int, now int64, set Setter) Outcome {
	c.advance(now)
	s := c.server(slot)
	if s == nil || s.raised == 0 && !s.fault || c.bandwidth.now < s.dwellEnds() {
		return Outcome{}
	}
	level := s.level()
	if !c.giveBack(s, set) {
		return Outcome{Kind: Refused, OldUs: level, NewUs: level}
	}
	return Outcome{Kind: Recovered, OldUs: level, NewUs: s.level()}
}

// giveBack ends a raise and a fault. It says whether the Setter agreed.
func (c *Core) giveBack(s *server, set Setter) bool {
	raised := s.raised
	s.raised = 0
	if s.budget > s.want() && c.put(s, s.want(), set) != nil {
		s.raised = raised
		return false
	}
	s.fault, s.wants = false, false
	s.over.forget()
	s.top.forget()
	if raised > 0 {
		s.recoveredAt = c.bandwidth.now
		s.recoveries++
	}
	return true
}

// Tick does what time makes due: idle servers recover, budgets and raises that waited for room get it, squeezed
// servers get theirs back. It returns when to call it again, 0 for not before the next event.
func (c *Core) Tick(now int64, set Setter) (next int64) {
	c.advance(now)
	for i := range c.servers {
		c.settle(&c.servers[i], set)
	}
	c.keepDown(set)
	for i := range c.servers {
		c.retry(&c.servers[i], set)
	}
	c.restore(set)
	return c.Next()
}

// settle takes from a server what it should not have (any more).
func (c *Core) settle(s *server, set Setter) {
	now := c.bandwidth.now
	if s.struck && s.retryAt <= now && c.giveBack(s, set) {
		s.struck, s.mayEscalate = false, false
	}
	if at, known := c.idleAt(s); known && at <= now && s.retryAt <= now {
		c.giveBack(s, set)
	}
	if s.wants && now > s.lastNeed()+s.dwell() {
		s.wants = false
	}
	if s.budget > s.want() && s.retryAt <= now {
		_ = c.put(s, s.want(), set)
	}
}

// retry gives a server what it waits for, if it can have it now.
func (c *Core) retry(s *server, set Setter) {
	if s.retryAt > c.bandwidth.now {
		return
	}
	_ = c.grow(s, set) // tried again later
	if s.wants {
		c.raise(s, s.above(), s.released(s.over.last, c.bandwidth.now), set)
	}
}

// idleAt is when a server that does not run recovers; it is not known for one that has nothing to recover from.
func (c *Core) idleAt(s *server) (at int64, known bool) {
	if s.raised == 0 && !s.fault {
		return 0, false
	}
	seen, known := c.seen(s)
	return max(seen+s.clean(), s.owedUntil+s.clean(), s.dwellEnds()), known
}

// roomier is when a period under way will have been released after more became free; 0 when that is so.
func (c *Core) roomier(s *server) int64 {
	since := c.bandwidth.now - s.period
	step := sooner(c.bandwidth.nextStep(since), c.windows.nextStep(since))
	if step == 0 {
		return 0
	}
	return step + s.period
}

// Next is when Tick is to be called, 0 for not before the next event. Events change it.
func (c *Core) Next() int64 {
	at, waiting := int64(0), false
	if v := c.lastSqueezed(); v != nil {
		waiting = true
		at = c.roomier(v)
		if c.restoreAt > c.bandwidth.now {
			at = sooner(at, c.restoreAt)
		}
	}
	for i := range c.servers {
		s := &c.servers[i]
		if idle, known := c.idleAt(s); known {
			at = sooner(at, max(idle, s.retryAt))
		}
		if s.wants {
			at = sooner(at, s.lastNeed()+s.dwell()+1)
		}
		if s.struck || s.retryAt > c.bandwidth.now {
			at = sooner(at, max(c.bandwidth.now+firstRetry, s.retryAt))
		}
		if s.wants || s.waits() {
			waiting = true
			at = sooner(at, c.roomier(s))
		}
	}
	if waiting {
		at = sooner(at, sooner(c.bandwidth.nextEnd(), c.windows.nextEnd()))
	}
	if at == 0 {
		return 0
	}
	return max(at, c.bandwidth.now+firstRetry)
}
