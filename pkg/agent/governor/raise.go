package governor

import "github.com/mainspring-rt/mainspring/pkg/rt"

// retries is how often within a window an alarm is told again after the Setter refused a raise.
const retries = 3

// leastGainUs is the smallest raise worth a write, in microseconds.
const leastGainUs = 20

// Alarm tells that the level of a slot ends soon, in the period released at release, and asks for a raise.
func (c *Core) Alarm(slot int, release, now int64, set Setter) Outcome {
	return c.overran(slot, overrun{release: release}, now, set)
}

// End tells that the budget of a slot is used up with work pending: an overrun that came too soon for its
// Alarm, or one of the highest budget, which becomes a fault when it goes on.
func (c *Core) End(slot int, release, now int64, set Setter) Outcome {
	return c.overran(slot, overrun{release: release, ended: true}, now, set)
}

// overrun of the level of a server in the period released at release.
type overrun struct {
	release int64
	used    int64 // nanoseconds that its kernel has charged it with, where it carries that into windows to come
	ended   bool  // the budget is used up, too
}

func (c *Core) overran(slot int, o overrun, now int64, set Setter) Outcome {
	s := c.heard(slot, o.release, now)
	if s == nil {
		return Outcome{}
	}
	o.release = min(o.release, c.bandwidth.now)
	return c.answer(s, o, set)
}

// heard is the server that an event is about; nil when that is unknown, or a server that had the slot before.
func (c *Core) heard(slot int, release, now int64) *server {
	c.advance(now)
	s := c.server(slot)
	if s == nil || s.budget == 0 || release+s.period <= s.since {
		return nil
	}
	return s
}

func (c *Core) answer(s *server, o overrun, set Setter) Outcome {
	now := c.bandwidth.now
	s.lastOverrun = now
	if o.ended && s.highest(s.budget) {
		c.exhausted(s, o.release)
	}
	out := Outcome{Kind: Counted, OldUs: s.level(), NewUs: s.level()}
	if s.highest(s.level()) {
		return out
	}
	first := s.over.count(o.release, s.period)
	if first {
		s.overruns++
	}
	if !s.mayEscalate || int64(s.over.within(s.Periods))+s.lost(o.used) < int64(s.Overruns) {
		return out
	}
	out.Kind = c.raise(s, s.paying(o.used), s.released(o.release, now), set)
	if out.Kind == Denied && first {
		s.denied++
	}
	out.NewUs = s.level()
	return out
}

// exhausted counts an overrun of the highest budget, and latches a fault after several in a row.
func (c *Core) exhausted(s *server, release int64) {
	if s.top.count(release, s.period) && s.highest(s.level()) {
		s.overruns++
	}
	if c.bandwidth.now < s.excusedUntil {
		s.top.mask = 0
		return
	}
	if s.criticality != rt.Low && s.top.within(c.options.FaultAfter) == c.options.FaultAfter {
		s.fault = true
	}
}

// raise goes up to a level, as far as there is room for a period released at since. Where there is too little, it asks
// victims to make room for later, for a server that leaves has not gone yet. In two modes all victims must have made
// room. A cut that the kernel refuses again and again does not keep a more critical server from a raise.
func (c *Core) raise(s *server, level, since int64, set Setter) Kind {
	if level <= s.level() {
		return Denied
	}
	s.wants = true
	if s.budget < s.LeastUs {
		return Denied // what the table asks for comes first
	}
	if c.modeSwitch && !c.squeezeAll(s, set) && s.tries < retries {
		c.refuse(s)
		s.rearm++
		return Refused
	}
	to := level
	if !c.fits(s, max(to, s.want()), since) {
		c.makeRoom(s, c.needs(s, to)+c.beyond()+c.bandwidth.owns(s.serial), set)
		to = min(to, s.affords(s.charged+c.bandwidth.owns(s.serial)+c.limit-c.bandwidth.most(since), c.options.GranularityUs))
	}
	to = c.scaled(s, to, since)
	if to < s.level()+min(c.leastGain(), level-s.level()) || !c.windowFree(s, to, since) {
		return Denied
	}
	if err := c.putSince(s, max(to, s.budget), since, set); err != nil {
		if s.tries <= retries {
			s.rearm++
		}
		return Refused
	}
	c.raisedTo(s, to)
	s.wants = to < level
	if s.wants {
		s.partial++
		return Partial
	}
	s.raises++
	return Raised
}

// raisedTo takes down a raise.
func (c *Core) raisedTo(s *server, to int64) {
	if s.raised == 0 {
		s.escalates(c.bandwidth.now)
	}
	s.raised = to
	s.over.forget()
	if s.above() > to {
		s.rearm++ // there is another level, which may be needed in this window
	}
}

func (c *Core) leastGain() int64 { return max(leastGainUs, c.options.GranularityUs) }

// scaled is how far a raise may go in the period under way. A server that woke up late in it has the rest
// of its budget by the kernel's wake-up rule already: the raise adds to that in proportion to the time
// that was left, so that both together keep to the bandwidth that is promised.
func (c *Core) scaled(s *server, to, release int64) int64 {
	now := c.bandwidth.now
	if !c.options.EDF || to <= s.budget || now >= release+s.period {
		return to
	}
	woke := now
	if c.options.Woke != nil {
		woke = min(max(c.options.Woke(s.Slot), release), now)
	}
	if s.scaledAt != release {
		s.scaledAt, s.scaledFrom = release, s.budget
	}
	window := s.windowUs * 1000
	left := min(max(0, release+window-woke), window)
	return max(s.budget, s.scaledFrom+(to-s.scaledFrom)*left/window)
}
