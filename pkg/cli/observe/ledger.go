package observe

import (
	"cmp"
	"slices"
	"time"
)

// Machine is one machine's entry in the ledger of all that ever were.
type Machine struct {
	Claim, Pool, Type, CapacityType, Zone string
	Price                                 float64 // $/h
	Created                               time.Time
	Gone                                  time.Time // zero while it is there
	Why                                   string    // why it left, "" before
}

// Life is how long the machine was there, until now at the longest.
func (m Machine) Life(now time.Time) time.Duration {
	if m.Gone.IsZero() {
		return now.Sub(m.Created)
	}
	return m.Gone.Sub(m.Created)
}

// note brings a machine's entry up to date.
func (s *store) note(n Node) {
	m, ok := s.ledger[n.Claim]
	if !ok {
		m = &Machine{Claim: n.Claim, Created: n.Created}
		s.ledger[n.Claim] = m
	}
	m.Pool, m.Type, m.CapacityType, m.Zone, m.Price = n.Pool, n.Type, n.CapacityType, n.Zone, n.Price
	if n.Phase == Leaving && n.Why != "" {
		m.Why = n.Why
	}
}

// Machines is the ledger, oldest first. Machines that were ordered and never had an instance type are left out.
func (r *Recorder) Machines() []Machine {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	all := make([]Machine, 0, len(r.store.ledger))
	for _, m := range r.store.ledger {
		if m.Type != "" {
			all = append(all, *m)
		}
	}
	slices.SortFunc(all, func(a, b Machine) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Claim, b.Claim))
	})
	return all
}
