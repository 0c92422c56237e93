package sim

import "github.com/mainspring-rt/mainspring/pkg/rt"

// react answers an exhausted budget.
func (e *engine) react(s *server) {
	if e.Reaction == Asked && !s.host {
		e.askAgent(s)
		return
	}
	if s.locked <= 0 {
		return
	}
	switch e.Reaction {
	case Raise:
		s.dwell = e.Dwell
		e.raise(s)
	case SqueezeNext, SqueezeNow:
		e.switchMode(s)
	case Window, WindowNaive:
		e.raiseInWindow(s)
	case Account, AccountNaive:
		e.raiseByPlan(s)
	case Stay, Asked:
	}
}

// raise unlocks the raised budget for the period that is under way.
func (e *engine) raise(s *server) {
	s.granted += s.locked
	s.locked, s.raised = 0, true
	s.late = e.lateness(s)
	e.result.Raises++
	e.notePromised()
}

// switchMode raises the server, and at the first overrun squeezes the others.
func (e *engine) switchMode(s *server) {
	first := !e.switched
	e.switched = true
	if !e.virtualDeadlines() {
		e.raise(s)
	}
	if !first {
		return
	}
	for i := range e.servers {
		o := &e.servers[i]
		switch {
		case o.host || !o.active:
		case o.MayEscalate() && e.virtualDeadlines():
			o.deadline = o.due
			e.raise(o)
		case !o.MayEscalate() && e.Reaction != SqueezeNext:
			o.granted = min(o.granted, max(o.floor, o.used))
			o.late = 0
			e.result.Squeezes++
		}
	}
}

// raiseInWindow raises a Limited server when a window is free, and any other at once.
func (e *engine) raiseInWindow(s *server) {
	since := s.release
	if e.Reaction == WindowNaive {
		since = e.now
	}
	holding := 0
	for _, deadline := range e.holders {
		if deadline > since {
			holding++
		}
	}
	if s.Limited && holding >= e.Windows {
		e.result.Refusals++
		return
	}
	if s.Limited {
		e.holders = append(e.holders, s.due)
	}
	e.raise(s)
}

// raiseByPlan raises what the plan allows, and asks for squeezes when there is no room.
func (e *engine) raiseByPlan(s *server) {
	plan, ok := raiseOf(e.Plan, s.ID)
	switch {
	case !ok:
		e.result.Refusals++
		return
	case plan.AtOnce:
		e.raise(s)
		return
	case e.Plan.ModeSwitch:
		e.switchMode(s)
		return
	}
	since := s.release
	if e.Reaction == AccountNaive {
		since = e.now
	}
	if room := e.Plan.Threshold - e.ledger.most(since, e.now); room < plan.Step {
		e.askFor(plan.Step - room)
		e.result.Refusals++
		return
	}
	e.ledger.add(s.release, s.due, plan.Step)
	e.raise(s)
}

// askFor squeezes victims in the plan's order until they give that much back, or there are no more.
func (e *engine) askFor(missing rt.PPM) {
	for _, q := range e.Plan.Squeeze {
		if missing <= 0 {
			return
		}
		for i := range e.servers {
			if v := &e.servers[i]; v.ID == q.ID && v.squeezed == full {
				v.squeezed = asked
				missing -= q.Frees
				e.result.Squeezes++
				if !v.active {
					e.ledger.ended(v, e.now)
				}
			}
		}
	}
}

func raiseOf(plan rt.CorePlan, id string) (rt.Raise, bool) {
	for _, r := range plan.Raise {
		if r.ID == id {
			return r, true
		}
	}
	return rt.Raise{}, false
}
