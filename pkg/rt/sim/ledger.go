package sim

import (
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// ledger is the account of what is promised, as rt.CorePlan defines it.
type ledger struct {
	threshold rt.PPM
	frees     map[string]rt.PPM
	// base is promised when no server is raised or squeezed; entries change it.
	base    rt.PPM
	entries []entry
}

// entry adds to what is promised from a time to another.
type entry struct {
	from, to int64
	add      rt.PPM
	// server is the victim of a squeeze; empty for raises.
	server string
}

func newLedger(c Config) ledger {
	l := ledger{threshold: c.Plan.Threshold, frees: map[string]rt.PPM{}}
	for _, q := range c.Plan.Squeeze {
		l.frees[q.ID] = q.Frees
	}
	for _, s := range c.Servers {
		if r, ok := raiseOf(c.Plan, s.ID); !ok || !r.AtOnce {
			s.High = s.Low // what is not raised at once is charged low
		}
		l.base += s.Charge(c.Core.Granularity)
	}
	return l
}

func (l *ledger) add(from, to int64, step rt.PPM) {
	l.entries = append(l.entries, entry{from: from, to: to, add: step})
}

// ended: the server has no period under way, so a squeeze that was asked for counts from now on.
func (l *ledger) ended(s *server, now int64) {
	if s.squeezed == asked {
		s.squeezed = cut
		l.entries = append(l.entries, entry{from: now, to: never, add: -l.frees[s.ID], server: s.ID})
	}
}

// restore gives a victim its budget back if that fits now and later.
func (l *ledger) restore(s *server, now int64) bool {
	if l.most(now, never)+l.frees[s.ID] > l.threshold {
		return false
	}
	for i := range l.entries {
		if e := &l.entries[i]; e.server == s.ID && e.to == never {
			e.to = now
		}
	}
	s.squeezed = full
	l.forget(now)
	return true
}

// forget drops what ended long before any period that is under way was released.
func (l *ledger) forget(now int64) {
	l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.to < now-2*rt.MaxPeriod })
}

// most is the largest sum promised at any instant of an interval; it changes only where entries start.
func (l *ledger) most(from, to int64) rt.PPM {
	most := l.at(from)
	for _, e := range l.entries {
		if e.from > from && e.from <= to {
			most = max(most, l.at(e.from))
		}
		if e.to > from && e.to <= to {
			most = max(most, l.at(e.to))
		}
	}
	return most
}

// at is what is promised at an instant.
func (l *ledger) at(t int64) rt.PPM {
	total := l.base
	for _, e := range l.entries {
		if e.from <= t && t < e.to {
			total += e.add
		}
	}
	return total
}
