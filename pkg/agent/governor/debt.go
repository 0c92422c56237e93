package governor

import "time"

// tick is the longest of any kernel's: so far a server may run past its budget. What it is charged with beyond
// that was not its work, but a stall of the machine.
const tick = int64(10 * time.Millisecond)

// mostLost is how many windows a server is taken to be stopped for at most.
const mostLost = 1000

// Owes tells that the kernel has charged a server with used nanoseconds in the window that began at release: with
// two budgets or more. At the end of each window it takes one budget from that, and stops the server until less than one is
// left. So every window that is lost counts as one that overran, and the raise goes up to the level with which
// none is, or to the highest.
func (c *Core) Owes(slot int, release, used, now int64, set Setter) Outcome {
	s := c.heard(slot, release, now)
	if s == nil {
		return Outcome{}
	}
	out := c.answer(s, overrun{release: min(release, c.bandwidth.now), used: used}, set)
	stopped := min(used/(s.budget*1000), mostLost) * s.period
	s.owedUntil = max(s.owedUntil, release+stopped)
	if used-s.budget*1000 > tick { // what queued up meanwhile takes as long again
		s.excusedUntil = max(s.excusedUntil, release+2*stopped)
	}
	return out
}

// lost is how many windows to come a server is stopped for that has used so much.
func (s *server) lost(used int64) int64 { return max(0, used/(s.budget*1000)-1) }

// paying is the lowest level above the one under way with which a server that has used so much loses no window. Where
// none is high enough it is the highest that the plan allows.
func (s *server) paying(used int64) int64 {
	level := s.above()
	for _, l := range s.LevelsUs {
		if used >= 2*level*1000 && l > level && l <= s.RaiseToUs {
			level = l
		}
	}
	if used >= 2*level*1000 {
		level = max(level, s.RaiseToUs)
	}
	return level
}

// lastNeed is when a server last needed more than its level, or will have paid what it owes.
func (s *server) lastNeed() int64 { return max(s.lastOverrun, s.owedUntil) }
