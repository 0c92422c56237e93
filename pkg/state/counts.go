package state

import (
	"cmp"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// A container counts on its core with what its claims take or with what runs, whichever is more. What its
// McKube asks for beyond that is a wish: it counts from when room is reserved for it, because else a wish
// that the core refuses would take the core from its neighbours.

// Claims is the load of a core in the witness packing: what its claims promise, the reservations, and
// the servers that run there without a claim.
func (n *NodeView) Claims(core *CoreView) rt.Load {
	load := rt.Load{Core: core.Core}
	for i := range n.Servers {
		if s := &n.Servers[i]; s.home() == core.ID {
			load.Servers = append(load.Servers, n.counted(s, core.Granularity))
		}
	}
	for _, r := range n.Reservations {
		if r.Core == core.ID && !n.holds(r) {
			load.Servers = append(load.Servers, r.Server)
		}
	}
	return load
}

// Runs is the load of a core in the physical packing.
func (n *NodeView) Runs(core *CoreView) rt.Load {
	load := rt.Load{Core: core.Core}
	for i := range n.Servers {
		if s := &n.Servers[i]; s.Physical == core.ID {
			load.Servers = append(load.Servers, s.InForce())
		}
	}
	return load
}

// holds tells whether the reserved server is on its core already, so that the reservation is for more of it.
func (n *NodeView) holds(r Reservation) bool {
	s, ok := n.Server(r.Server.ID)
	return ok && s.home() == r.Core
}

// counted is how a server counts on its core, with what is reserved for it to grow.
func (n *NodeView) counted(s *ServerView, granularity int64) rt.Server {
	out := s.counted(granularity)
	for _, r := range n.Reservations {
		if r.Server.ID == s.ID && r.Core == s.home() && r.Server.Charge(granularity) > out.Charge(granularity) {
			out = r.Server
		}
	}
	return out
}

// booked is the bandwidth that a reservation takes beyond what its server counts with already.
func (n *NodeView) booked(r Reservation, granularity int64) rt.PPM {
	charge := r.Server.Charge(granularity)
	if s, ok := n.Server(r.Server.ID); ok && s.home() == r.Core {
		return max(0, charge-s.charge(granularity))
	}
	return charge
}

// InForce is the server as the node was told to run it; before that, as its claims pay for it.
func (s *ServerView) InForce() rt.Server {
	if s.inForce != nil {
		return *s.inForce
	}
	return s.Server
}

// home is the core on which the scheduler counts the server.
func (s *ServerView) home() int {
	if s.Witness != rt.NoCore {
		return s.Witness
	}
	return s.Physical
}

// charge is what the server takes from its core: what runs or what its claims take.
func (s *ServerView) charge(granularity int64) rt.PPM {
	if s.inForce != nil {
		return max(s.Claimed, s.inForce.Charge(granularity))
	}
	return max(s.Claimed, s.Charge(granularity))
}

// counted is the server with at least the bandwidth of its claim: while a claim is larger than what is in
// force, the scheduler counts the claim.
func (s *ServerView) counted(granularity int64) rt.Server {
	out := s.InForce()
	if s.Claimed <= out.Charge(granularity) {
		return out
	}
	return s.sized(s.Claimed, granularity)
}

// sized is a server of the same standing that takes exactly the bandwidth.
func (s *ServerView) sized(ppm rt.PPM, granularity int64) rt.Server {
	out := placeholder(s.ID, ppm, granularity)
	out.Criticality, out.Priority = s.Criticality, s.Priority
	return out
}

// Backed tells whether the core of a server's claim has the escalation reserve for its raise. The scheduler tests that when it
// allocates. No test was made if settings changed since.
func (n *NodeView) Backed(s *ServerView) bool {
	core, ok := n.Core(s.Witness)
	return !ok || !s.Limited || s.Step() <= core.EscalationReserve
}

// settle finds what is in force of a server. What its claims pay for at the granularity that they are charged is
// in force where nothing runs yet.
func (n *NodeView) settle(s *ServerView, charged int64) {
	if told, ok := s.told(); ok {
		if !sameDemand(told, s.Server) {
			s.inForce = &told
		}
		return
	}
	if s.Witness != rt.NoCore && (s.Charge(charged) > s.Claimed || !n.Backed(s)) {
		unpaid := s.sized(s.Claimed, n.Granularity)
		s.inForce = &unpaid
	}
}

// told is the server of RTNode.spec. Its standing is what its McKube says now: that costs its neighbours nothing.
func (s *ServerView) told() (rt.Server, bool) {
	if s.Spec == nil {
		return rt.Server{}, false
	}
	out, err := serverTold(s.Spec)
	if err != nil {
		return rt.Server{}, false
	}
	if out.Criticality != s.Criticality { // it decides on the budget that is charged, too
		budget := out.Guaranteed()
		if out.Limited {
			budget = out.Low
		}
		out.Low, out.High, out.Limited, out.Criticality = budget, budget, false, s.Criticality
	}
	out.Preferred, out.Priority = s.Preferred, s.Priority
	return out, true
}

// serverTold is the server of an entry of RTNode.spec.
func serverTold(spec *v1alpha1.RTServer) (rt.Server, error) {
	criticality, err := rt.ParseCriticality(spec.Criticality)
	out := rt.Server{
		ID: rtdra.ServerID(spec.PodUID, spec.Container), Criticality: criticality, Period: spec.PeriodUs,
		Deadline: spec.DeadlineUs, Low: spec.BudgetLowUs, High: spec.BudgetHighUs, Limited: spec.Limited,
	}
	if err != nil {
		return out, err
	}
	return out, out.Validate()
}

// sameDemand tells whether two servers are the same to the tests of a core.
func sameDemand(a, b rt.Server) bool {
	return a.Criticality == b.Criticality && a.Period == b.Period && cmp.Or(a.Deadline, a.Period) == cmp.Or(b.Deadline, b.Period) &&
		a.Low == b.Low && a.High == b.High && a.Limited == b.Limited
}

// placeholder is a server that takes exactly the bandwidth.
func placeholder(id string, ppm rt.PPM, granularity int64) rt.Server {
	budget := max(1, int64(min(ppm, rt.MaxCapacity))-granularity)
	return rt.Server{ID: id, Criticality: rt.High, Period: int64(rt.OneCore), Low: budget, High: budget}
}
