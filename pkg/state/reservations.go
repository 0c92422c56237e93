package state

import (
	"fmt"
	"slices"

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

// Reserve keeps room for a server until a time, if the core still takes it: the test and the
// reservation are one step, so two who saw the same room cannot both have it. A reservation of the same
// key is replaced. The error is a *RefusedError.
func (s *Store) Reserve(r Reservation) error {
	return s.write(func(next *Snapshot, d *dirty) error {
		if v := next.admits(r); !v.Admitted {
			return &RefusedError{Node: r.Node, Core: r.Core, Verdict: v}
		}
		if old, ok := next.reservations.get(pair{first: r.Key}); ok {
			next.unreserve(old, d)
		}
		next.reserve(&r, d)
		if first := s.expiry.Load(); first == 0 || r.Until.UnixNano() < first {
			s.expiry.Store(r.Until.UnixNano())
		}
		return nil
	})
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

// admits judges a reservation against everything but an earlier one of its key.
func (s *Snapshot) admits(r Reservation) rt.Verdict {
	none := rt.Verdict{Test: rt.TestT1, Need: r.Server.Charge(s.granularity), Reason: rt.ReasonNoCore}
	n, ok := s.NodeView(r.Node)
	if !ok {
		return none
	}
	core, ok := n.Core(r.Core)
	if !ok {
		return none
	}
	// Without an earlier reservation of the key, which this one replaces.
	others := *n
	others.Reservations = slices.DeleteFunc(slices.Clone(n.Reservations), func(o Reservation) bool { return o.Key == r.Key })
	return rt.Admit(core.Core, others.Claims(core).Servers, r.Server)
}
