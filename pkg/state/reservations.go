package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// RefusedError says why a core does not take a server.
type RefusedError struct {
	Node    string
	Core    int
	Verdict rt.Verdict
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("reserving core %d of node %s: %s", e.Core, e.Node, e.Verdict)
}

// Reserve keeps room for a server until a time, if the core still takes it. The test and the reservation are one step, so two
// callers that saw the same room cannot both have it. A reservation of the same key is replaced. The error is a *RefusedError.
func (s *Store) Reserve(r Reservation) error { return s.ReserveAll([]Reservation{r}) }

// ReserveAll is Reserve for servers that go together: all of them have their room, or none.
func (s *Store) ReserveAll(list []Reservation) error {
	return s.write(func(next *Snapshot, d *dirty) error {
		for i, r := range list {
			if v := next.admits(r, list, i); !v.Admitted {
				return &RefusedError{Node: r.Node, Core: r.Core, Verdict: v}
			}
		}
		for i := range list {
			next.replace(&list[i], d)
			s.expireAt(list[i].Until)
		}
		return nil
	})
}

// expireAt notes when a reservation ends.
func (s *Store) expireAt(until time.Time) {
	if until.IsZero() {
		return
	}
	if first := s.expiry.Load(); first == 0 || until.UnixNano() < first {
		s.expiry.Store(until.UnixNano())
	}
}

// Release gives a reservation back. Unknown keys are no error: it may have expired.
func (s *Store) Release(key string) {
	s.write(func(next *Snapshot, d *dirty) error { //nolint:errcheck // releasing cannot fail
		if old, ok := next.reservations.get(pair{first: key}); ok {
			next.unreserve(old, d)
		}
		return nil
	})
}

// expire drops the reservations whose time is over and notes when the next one ends.
func (s *Store) expire(next *Snapshot, d *dirty) error {
	now, first := s.clock.Now(), int64(0)
	for _, r := range next.reservations.all() {
		if r.Until.IsZero() {
			continue
		}
		if !now.Before(r.Until) {
			next.unreserve(r, d)
			continue
		}
		if end := r.Until.UnixNano(); first == 0 || end < first {
			first = end
		}
	}
	s.expiry.Store(first)
	return nil
}

// replace puts a reservation in the place of an earlier one of its key.
func (s *Snapshot) replace(r *Reservation, d *dirty) {
	if old, ok := s.reservations.get(pair{first: r.Key}); ok {
		s.unreserve(old, d)
	}
	s.reserve(r, d)
}

func (s *Snapshot) reserve(r *Reservation, d *dirty) {
	s.reservations = s.reservations.put(pair{first: r.Key}, r)
	s.nodeReservations = link(s.nodeReservations, r.Node, r.Key)
	d.booked = append(d.booked, booked{r.Node, r.Core})
}

func (s *Snapshot) unreserve(r *Reservation, d *dirty) {
	s.reservations = s.reservations.remove(pair{first: r.Key})
	s.nodeReservations = unlink(s.nodeReservations, r.Node, r.Key)
	d.booked = append(d.booked, booked{r.Node, r.Core})
}

// admits judges a reservation of a list against everything but earlier ones of the keys of the list, with those
// before it in the list.
func (s *Snapshot) admits(r Reservation, list []Reservation, before int) rt.Verdict {
	none := rt.Verdict{Test: rt.TestT1, Need: r.Server.Charge(s.granularity), Reason: rt.ReasonNoCore}
	n, ok := s.NodeView(r.Node)
	if !ok {
		return none
	}
	core, ok := n.Core(r.Core)
	if !ok {
		return none
	}
	others := *n
	others.Reservations = slices.DeleteFunc(slices.Clone(n.Reservations), func(o Reservation) bool {
		return slices.ContainsFunc(list, func(l Reservation) bool { return l.Key == o.Key })
	})
	for _, earlier := range list[:before] {
		if earlier.Node == r.Node {
			others.Reservations = append(others.Reservations, earlier)
		}
	}
	return rt.Admit(core.Core, others.Claims(core).Servers, r.Server)
}
