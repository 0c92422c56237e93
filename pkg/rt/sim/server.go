package sim

import (
	"math"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// never is later than every horizon.
const never = math.MaxInt64 / 4

// server is the state of one server.
type server struct {
	rt.Server
	host bool
	// floor is how far it may be squeezed.
	floor int64
	// next is the job that arrives next; pending is the work that has arrived.
	next    Job
	pending int64

	// active: a period is under way. It was released at release, its budget is due at due, and the next
	// may be released at renew. deadline is what EDF goes by.
	active                        bool
	release, due, renew, deadline int64
	// granted is the budget of the period, locked the raise that is still to be had, used what was
	// used; late is how late the budget's end will be noticed; owed bounds what is promised (fixed
	// priorities).
	granted, locked, used, late, owed int64
	// whole is the budget that an agent set for the period; 0 without one.
	whole  int64
	raised bool
	// dwell is for how many further periods the budget stays raised.
	dwell int
	// squeezed is the state of a plan: no, decided, or done.
	squeezed squeeze
}

type squeeze uint8

const (
	full squeeze = iota
	asked
	cut
)

// limit is how much longer the server may run in this period.
func (s *server) limit() int64 {
	if !s.active {
		return 0
	}
	return s.granted + s.late - s.used
}

func (s *server) runnable() bool { return s.pending > 0 && s.limit() > 0 }

// exhausted: there is work and no budget for it.
func (s *server) exhausted() bool { return s.active && s.pending > 0 && s.limit() <= 0 }

// broken: the budget is due and was not given although there was work.
func (s *server) broken() bool {
	return s.pending > 0 && s.used < min(s.granted, s.owed)
}

// nominal is the budget that the bandwidth of the current period is about.
func (s *server) nominal() int64 {
	if s.whole > 0 {
		return s.whole
	}
	if s.raised {
		return s.High
	}
	if s.squeezed == cut {
		return s.floor
	}
	return s.Low
}

// nextEvent is the time of the server's next event of its own.
func (s *server) nextEvent(now int64) int64 {
	at := s.next.At
	if s.active {
		if s.due > now {
			at = min(at, s.due)
		}
		at = min(at, s.renew)
	}
	return at
}
