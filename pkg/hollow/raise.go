package hollow

import (
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// podStep does the next step of a container's script.
func (m *Machine) podStep(s *server, now time.Time) {
	switch step := s.script.take(); step.Verb {
	case Overrun:
		m.overrun(s, now)
	case Miss:
		s.misses += step.Number
	case Need:
		m.need(s, step.Number*s.spec.PeriodUs/100, now)
	case OverrunUntilMoved:
		if s.script.moved(s.core) {
			s.script.end()
			return
		}
		m.overrun(s, now)
	case OverrunWhileCrowded:
		if m.crowded(s.core, step.Number) {
			m.overrun(s, now)
		}
	case MissWhileCrowded:
		if m.crowded(s.core, step.Number) {
			s.misses++
		}
	}
}

// need is a job that needs so many microseconds.
func (m *Machine) need(s *server, us int64, now time.Time) {
	if us > s.level {
		m.overrun(s, now)
	}
	if us > s.budget {
		s.misses++
	}
}

// starves says that a container of the node has work to do and no budget.
func (m *Machine) starves(s *server) bool {
	_, here := m.containers[keyOf(s.spec)]
	return here && s.script.needs()
}

// crowded says that more than so many percent of the core are promised.
func (m *Machine) crowded(core int32, percent int64) bool {
	return m.promised(core) > rt.PPM(percent)*rt.OneCore/100
}

// overrun counts a period in which the budget was used up with work pending, and asks for a raise when
// enough of the last periods were such.
func (m *Machine) overrun(s *server, now time.Time) {
	s.overruns++
	s.lastOverrun = now
	enough, of := s.spec.Trigger()
	oldest := now.Add(-time.Duration(of) * micros(s.spec.PeriodUs))
	s.recent = slices.DeleteFunc(append(s.recent, now), func(t time.Time) bool { return !t.After(oldest) })
	if len(s.recent) < int(enough) || m.raisableTo(s) <= s.level {
		return
	}
	s.wants = true
	m.raise(s, now)
}

// raisableTo is the budget up to which the plan lets the agent raise a server; 0 when it does not.
func (m *Machine) raisableTo(s *server) int64 {
	for _, r := range m.plans[s.spec.Cores[0]].Raise {
		if r.PodUID == s.spec.PodUID && r.Container == s.spec.Container {
			return min(r.ToUs, s.spec.BudgetHighUs)
		}
	}
	return 0
}

// raise goes one level up where the plan has room for it now. Otherwise the server keeps wanting until its
// dwell is over.
func (m *Machine) raise(s *server, now time.Time) {
	if now.Sub(s.lastOverrun) > s.dwell() || s.refusal != "" {
		s.wants = false
		return
	}
	to := above(s.spec, s.level, m.raisableTo(s))
	if to <= s.level {
		s.wants = false
		return
	}
	more := bandwidth(s.spec, max(to, s.budget), m.granularity) - bandwidth(s.spec, s.budget, m.granularity)
	if !m.windowFree(s, now) || m.promised(s.core)+more > m.limit(s.core) {
		return
	}
	if s.raised == 0 {
		s.doublings = doublings(s, now)
		s.raisedAt = now
	}
	s.wants, s.raised = false, to
	s.recent = nil
	m.force(s, max(to, s.budget))
}

// inWindow says that the server takes one of the places for raises that its core's escalation reserve pays.
func (s *server) inWindow() bool { return s.spec.Limited && s.level > s.spec.BudgetLowUs }

// windowFree is the window rule of test T1k: at most MaxRaised Limited servers of a core are above their low budget
// at once, and a place is taken only in a period that was released when the last holder's deadline was
// over.
func (m *Machine) windowFree(s *server, now time.Time) bool {
	most := m.plans[s.core].MaxRaised
	if most == 0 || !s.spec.Limited || s.inWindow() {
		return true
	}
	raised := int32(0)
	for _, other := range m.servers {
		if other.core == s.core && other.inWindow() {
			raised++
		}
	}
	return raised < most && !s.release(now).Before(m.freeAt[s.core])
}

// doublings is how often the dwell is doubled now: once more when the last recovery is not longer ago than
// twice the dwell, not at all otherwise.
func doublings(s *server, now time.Time) int {
	if s.recovered.IsZero() || now.Sub(s.recovered) > 2*s.dwell() {
		return 0
	}
	return min(s.doublings+1, maxDoublings)
}

// recovery is when a raised server goes back: at the first replenishment after its dwell.
func (m *Machine) recovery(s *server) (at time.Time, ok bool) {
	if s.raised == 0 {
		return time.Time{}, false
	}
	return s.nextRelease(maxTime(s.raisedAt, s.lastOverrun).Add(s.dwell())), true
}

// recover gives the raise back.
func (m *Machine) recover(s *server, now time.Time) {
	if s.inWindow() {
		m.freeAt[s.core] = maxTime(m.freeAt[s.core], now)
	}
	s.raised, s.recovered = 0, now
	s.recent = nil
	if target := m.target(s); target < s.budget {
		// The period before ended with its deadline: nothing of the raise is promised any more.
		m.force(s, target)
	} else {
		m.force(s, s.budget)
	}
	m.settle(now)
}
