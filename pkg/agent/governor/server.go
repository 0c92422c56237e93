package governor

import (
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// server is what is known of one server. Budgets are microseconds, times nanoseconds.
type server struct {
	Server
	serial      uint64 // in the account; another for every server that ever held the slot
	criticality rt.Criticality
	mayEscalate bool
	windowUs    int64 // within which a budget is owed
	period      int64
	since       int64 // here since
	payable     bool  // the plan promises its raise from the start,
	paid        bool  // and the account does
	struck      bool  // its raise, which is in force, has no room in the plan any longer
	wasReserved bool  // in the table before

	budget   int64 // in force; 0: none
	granted  int64 // what the table may have: its least budget, or less when that does not fit
	kept     int64 // what it had at the last Load when it was neither raised nor squeezed
	raised   int64 // the level that was chosen here; 0: none
	squeezed int64 // the budget that it was cut to; 0: not cut
	floor    int64 // how far it may be cut; 0: not at all
	order    uint64
	charged  rt.PPM
	window   bool // takes one of the plan's windows

	over        periods // that used up the level
	top         periods // that used up the highest budget
	lastOverrun int64
	owedUntil   int64 // stopped for what it owes, until then
	// excusedUntil: until then it is no fault to use up the highest budget, for what it owes was no work of its.
	excusedUntil int64
	scaledAt     int64 // release of the period whose raises are scaled,
	scaledFrom   int64 // and the budget that it began with
	raisedAt     int64
	recoveredAt  int64
	doublings    int
	wants        bool // an overrun asks for a raise that was not granted in full
	fault        bool
	rearm        uint32
	tries        int   // refused by the Setter in a row
	retryAt      int64 // earliest next try after a refusal

	overruns, raises, partial, denied, refused, squeezedTimes, recoveries uint64
}

// maxDoublings bounds the dwell at 64 times its usual length.
const maxDoublings = 6

// level is the budget that counts as granted.
func (s *server) level() int64 { return min(s.budget, max(s.granted, s.raised)) }

// want is the budget that should be in force.
func (s *server) want() int64 {
	budget := max(s.granted, s.raised)
	if s.reserved() {
		budget = max(budget, s.RaiseToUs)
	}
	if s.squeezed > 0 {
		budget = min(budget, s.squeezed)
	}
	return budget
}

// least is what the server is to have when it is not raised: what it was granted, or what is left of that where it gives
// way.
func (s *server) least() int64 {
	if s.squeezed > 0 {
		return min(s.granted, s.squeezed)
	}
	return s.granted
}

// keeps is the budget in force, or the one that it had before it gave way to a raise, or was raised itself.
func (s *server) keeps() int64 {
	switch {
	case s.squeezed > 0:
		return max(s.budget, s.granted)
	case s.raised > 0 && s.granted > 0:
		return min(s.budget, s.granted)
	}
	return s.budget
}

// gaveWay says that a new server has the budget of a victim that gives way, out of the budget that it should have.
func (s *server) gaveWay(of int64) bool { return s.floor > 0 && s.budget >= s.floor && s.budget < of }

// above is the next level above the one under way that the plan allows; the one under way when there is none.
func (s *server) above() int64 {
	level := s.level()
	for _, l := range s.LevelsUs {
		if l > level && l <= s.RaiseToUs {
			return l
		}
	}
	return max(level, s.RaiseToUs)
}

// reserved: its raise is in force from the start; alarms only mark it.
func (s *server) reserved() bool { return s.paid && s.Mode == table.Reserved }

// highest says that a budget is the most that the server was admitted with.
func (s *server) highest(budget int64) bool {
	return budget >= s.HighUs || !s.mayEscalate && budget >= s.LowUs
}

// charge is the bandwidth of a budget.
func (s *server) charge(budget, granularity int64) rt.PPM {
	if budget <= 0 {
		return 0
	}
	return rt.Server{Period: s.PeriodUs, Deadline: s.DeadlineUs, Low: budget, High: budget}.Charge(granularity)
}

// affords is the largest budget whose charge is at most a bandwidth.
func (s *server) affords(bandwidth rt.PPM, granularity int64) int64 {
	if bandwidth <= 0 {
		return 0
	}
	return int64(bandwidth)*s.windowUs/int64(rt.OneCore) - granularity
}

// deadline is until when what is in force now may be promised: no period under way ends later.
func (s *server) deadline(now int64) int64 { return now + s.windowUs*1000 }

// released is the earliest that the period under way can have been released, when the last release known
// is at.
func (s *server) released(at, now int64) int64 { return max(min(at, now), now-s.period) }

// dwell is how long a raise is kept after the last overrun.
func (s *server) dwell() int64 { return s.dwellOf(s.doublings) }

func (s *server) dwellOf(doublings int) int64 {
	least := s.DwellUs * 1000
	if least == 0 {
		least = max(cleanPeriods*s.period, int64(time.Second))
	}
	return least << doublings
}

// cleanPeriods is how many periods at least a server must be idle or clean before it recovers.
const cleanPeriods = 20

// clean is how long that takes, for a server that does not run at all.
func (s *server) clean() int64 { return max(cleanPeriods*s.period, int64(time.Second)) }

// dwellEnds is when a raise may be given back.
func (s *server) dwellEnds() int64 { return max(s.raisedAt, s.lastNeed()) + s.dwell() }

// escalates takes down the begin of a raise. Its dwell doubles when the last recovery is not longer ago than twice
// the dwell, and halves for every such time that was quiet.
func (s *server) escalates(now int64) {
	s.raisedAt = now
	if s.recoveredAt == 0 {
		return
	}
	quiet, decayed := now-s.recoveredAt, false
	for s.doublings > 0 && quiet > 2*s.dwell() {
		quiet -= 2 * s.dwell()
		s.doublings--
		decayed = true
	}
	if !decayed && quiet <= 2*s.dwell() {
		s.doublings = min(s.doublings+1, maxDoublings)
	}
}

// specify gives the server another entry of the table, under a plan. One without windows is not by T1k, the only test that knows of Limited servers.
func (s *server) specify(spec Server, p table.Plan) error {
	known, err := spec.RT()
	if err != nil {
		return err
	}
	if s.changed(spec) {
		s.fault, s.over, s.top = false, periods{}, periods{}
	}
	s.wasReserved = s.reserved()
	s.Server, s.criticality = spec, known.Criticality
	s.mayEscalate = known.MayEscalate() || known.Low < known.High && spec.RaiseToUs > 0
	s.Limited = s.Limited && p.MaxRaised > 0
	s.windowUs, s.period = known.Window(), spec.PeriodUs*1000
	if !s.mayEscalate || s.Leaving {
		s.RaiseToUs = 0
	}
	s.RaiseToUs = min(s.RaiseToUs, spec.HighUs)
	return nil
}

// same says that an entry is about the group that is known, with the periods that are known. Any other has to
// be opened anew, and what it has in force is told by InForce.
func (s *server) same(spec Server) bool {
	return s.Slot == spec.Slot && s.Cgroup == spec.Cgroup && s.PeriodUs == spec.PeriodUs && s.DeadlineUs == spec.DeadlineUs
}

// changed: the entry asks for other budgets than the one before.
func (s *server) changed(spec Server) bool {
	return s.LowUs != spec.LowUs || s.HighUs != spec.HighUs || s.LeastUs != spec.LeastUs || s.Criticality != spec.Criticality
}
