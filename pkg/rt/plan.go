package rt

import (
	"cmp"
	"slices"
)

// Raise is a server whose budget may be raised.
type Raise struct {
	ID string
	// ToUs is the highest budget, in microseconds.
	ToUs int64
	// Step is the bandwidth that the raise adds, 0 when it is paid for already.
	Step PPM
	// AtOnce: the raise is paid for already, it needs neither room nor a squeeze. Otherwise see CorePlan.
	AtOnce bool
}

// Squeeze is a server whose budget may be cut.
type Squeeze struct {
	ID string
	// FloorUs is the smallest budget, in microseconds.
	FloorUs int64
	// Frees is the bandwidth that the cut gives back.
	Frees PPM
}

// CorePlan says, before anything happens, which servers of a core may be raised and which are squeezed for it.
//
// What is promised at an instant is the sum over the servers of their charge, for Limited ones with the
// Step while they are raised, for squeezed ones without Frees. A raised period counts with its Step
// from its release to its deadline, a squeeze counts from the deadline of the victim's period in which
// it was decided (the 0-lag time). A raise that is not AtOnce is allowed when, at every instant since
// the release of the server's current period, what was promised and the Step together are at most
// Threshold; until then victims are squeezed in order. So the room of a window or squeeze that ended
// may be used only by periods that were released later: that "it is free now" is not enough.
//
// Under ModeSwitch there is no such account: the first overrun squeezes every server in Squeeze at that
// moment and raises every server in Raise, and an idle core returns to low budgets. A server that comes meanwhile
// and is in Squeeze comes at its floor.
type CorePlan struct {
	Core int
	// Threshold is what may be promised at any instant, granularity included.
	Threshold PPM
	// Test is the test that proved the plan.
	Test string
	// Holds: the servers pass Test. If not (the core shrank, or the granularity was worse than
	// thought), nothing is AtOnce, and only what fits after squeezing is planned.
	Holds bool
	// Windows is how many raises that are not AtOnce may overlap without looking at the account; 0 when
	// Limited servers are as any other: there are none, or AMC-rtb judged them. It is what an agent without the account goes by: a window lasts
	// from the release of the raised period to its deadline.
	Windows int
	// ModeSwitch: raises and squeezes happen together (EDF-VD, AMC-rtb).
	ModeSwitch bool
	// VirtualDeadline, when not 0, is the factor, in PPM of the period, that servers in Raise have as
	// relative deadline until the first overrun (EDF-VD).
	VirtualDeadline PPM
	// Raise is in order of preference, the most critical first; Squeeze the least critical first.
	Raise   []Raise
	Squeeze []Squeeze
}

// PlanCore makes the escalation plan of a core.
func PlanCore(core Core, servers []Server) CorePlan {
	v := Holds(core, servers)
	p := CorePlan{Core: core.ID, Threshold: core.Capacity, Test: v.Test, Holds: v.Admitted}
	ordered := byCriticality(servers, core.Granularity)
	switch {
	case !p.Holds:
		p.planRemains(core, ordered)
	case v.Test == TestEDFVD:
		p.ModeSwitch = true
		p.VirtualDeadline, _ = virtualDeadline(core, servers)
	case v.Test == TestAMC:
		_, p.ModeSwitch = amcTest(core, servers)
	}
	if p.Holds {
		p.planAll(core, ordered)
	}
	return p
}

// planAll plans every raise of servers that pass their test.
func (p *CorePlan) planAll(core Core, ordered []Server) {
	for _, s := range ordered {
		if s.MayEscalate() {
			paid := !s.Limited || p.Test == TestAMC // which knows of no Limited ones
			p.Raise = append(p.Raise, raiseOf(s, paid && !p.ModeSwitch))
		}
	}
	if p.Test == TestT1k {
		p.Threshold, p.Windows = sum(p.Threshold, core.EscalationReserve), Windows
	}
	switch {
	case p.ModeSwitch || slices.ContainsFunc(p.Raise, func(r Raise) bool { return !r.AtOnce }):
		p.Squeeze = squeezes(core, ordered)
	case p.Test == TestT1:
		p.raiseLow(core, ordered)
	}
}

// raiseLow plans raises of servers of criticality Low, as far as they fit beside the Charge of every server.
// Admission does not count them: the next server that is admitted to the core takes their room, because its plan is
// made anew. T1 alone knows what is left: under T1k and EDF-VD Low gives way to raises, and under AMC-rtb bandwidth
// proves nothing.
func (p *CorePlan) raiseLow(core Core, ordered []Server) {
	promised := PPM(0)
	for _, s := range ordered {
		promised = sum(promised, s.Charge(core.Granularity))
	}
	for _, s := range ordered {
		step := ratio(s.High-s.Low, s.Window())
		if s.Criticality == Low && s.Low < s.High && sum(promised, step) <= p.Threshold {
			promised = sum(promised, step)
			p.Raise = append(p.Raise, Raise{ID: s.ID, ToUs: s.High, AtOnce: true})
		}
	}
}

// planRemains plans the raises that fit when every server that can be is squeezed.
func (p *CorePlan) planRemains(core Core, ordered []Server) {
	p.Squeeze = squeezes(core, ordered)
	promised := PPM(0)
	for _, s := range ordered {
		promised = sum(promised, s.at(s.Floor(core.Granularity), core.Granularity))
	}
	for _, s := range ordered {
		if s.MayEscalate() && sum(promised, s.Step()) <= p.Threshold {
			promised = sum(promised, s.Step())
			p.Raise = append(p.Raise, raiseOf(s, false))
		}
	}
}

func raiseOf(s Server, atOnce bool) Raise {
	r := Raise{ID: s.ID, ToUs: s.High, AtOnce: atOnce}
	if !atOnce {
		r.Step = s.Step()
	}
	return r
}

// squeezes are all servers that can be squeezed, the least critical and largest first.
func squeezes(core Core, ordered []Server) []Squeeze {
	var out []Squeeze
	for _, s := range slices.Backward(ordered) {
		floor := s.Floor(core.Granularity)
		if frees := s.at(s.Low, core.Granularity) - s.at(floor, core.Granularity); frees > 0 {
			out = append(out, Squeeze{ID: s.ID, FloorUs: floor, Frees: frees})
		}
	}
	return out
}

// byCriticality orders the most critical first, then the smallest charge, then by ID.
func byCriticality(servers []Server, granularity int64) []Server {
	out := slices.Clone(servers)
	slices.SortFunc(out, func(a, b Server) int {
		return cmp.Or(
			cmp.Compare(b.Criticality, a.Criticality),
			cmp.Compare(a.Charge(granularity), b.Charge(granularity)),
			cmp.Compare(a.ID, b.ID))
	})
	return out
}
