package rt

import "slices"

// Windows is how many raises of Limited servers may overlap on a core.
const Windows = 1

// Admit judges whether the server may join those placed on the core. A placed server with the same ID
// is the server's own former self and is not counted.
func Admit(core Core, placed []Server, s Server) Verdict {
	others := without(placed, s.ID)
	if core.Policy == EDF && valid(others) {
		return admitByBandwidth(core, others, s)
	}
	v := Holds(core, append(slices.Clip(others), s))
	v.Need = s.Charge(core.Granularity)
	v.Used = used(core, others)
	return v
}

// admitByBandwidth is what Holds says of the others and the server, without a copy.
func admitByBandwidth(core Core, others []Server, s Server) Verdict {
	v := Verdict{Test: TestT1, Need: s.Charge(core.Granularity), Used: used(core, others), Limit: max(0, core.Capacity)}
	if s.Limited || slices.ContainsFunc(others, limited) {
		v.Test = TestT1k
	}
	switch broke := overReserve(core, others); {
	case s.Validate() != nil:
		return v.refuse(ReasonInvalidServer, s.ID)
	case sum(v.Used, v.Need) > v.Limit:
		return v.refuse(ReasonCoreFull, "")
	case s.Limited && s.Step() > core.EscalationReserve:
		return v.refuse(ReasonReserveTooSmall, s.ID)
	case broke >= 0:
		return v.refuse(ReasonReserveTooSmall, others[broke].ID)
	}
	v.Admitted, v.Reason = true, ReasonFits
	return v
}

// Holds judges the whole set of servers on a core. Under EDF, charges fit into the capacity and the
// step of each Limited server into the escalation reserve: T1, and T1k with one window, in the
// form that the scheduler can check claim by claim. Under EDFVirtualDeadlines a set that fails T1 may
// pass EDF-VD. Under FixedPriority it is AMC-rtb.
func Holds(core Core, servers []Server) Verdict {
	for _, s := range servers {
		if s.Validate() != nil {
			return judge(testOf(core), used(core, servers), core.Capacity).refuse(ReasonInvalidServer, s.ID)
		}
	}
	switch core.Policy {
	case FixedPriority:
		return AMCrtb(core, servers)
	case EDFVirtualDeadlines:
		if v := holdsByBandwidth(core, servers); v.Admitted {
			return v
		}
		return EDFVD(core, servers)
	default:
		return holdsByBandwidth(core, servers)
	}
}

func holdsByBandwidth(core Core, servers []Server) Verdict {
	v := judge(TestT1, used(core, servers), core.Capacity)
	if slices.ContainsFunc(servers, limited) {
		v.Test = TestT1k
	}
	if i := overReserve(core, servers); v.Admitted && i >= 0 {
		return v.refuse(ReasonReserveTooSmall, servers[i].ID)
	}
	return v
}

// overReserve is the index of a Limited server whose raise the reserve does not pay; -1 for none.
func overReserve(core Core, servers []Server) int {
	return slices.IndexFunc(servers, func(s Server) bool { return s.Limited && s.Step() > core.EscalationReserve })
}

func testOf(core Core) string {
	if core.Policy == FixedPriority {
		return TestAMC
	}
	return TestT1
}

func limited(s Server) bool { return s.Limited }

func valid(servers []Server) bool {
	return !slices.ContainsFunc(servers, func(s Server) bool { return s.Validate() != nil })
}

// without are the servers but for those with the ID; the slice itself when there is none.
func without(servers []Server, ids ...string) []Server {
	gone := func(s Server) bool { return slices.Contains(ids, s.ID) }
	if !slices.ContainsFunc(servers, gone) {
		return servers
	}
	return slices.DeleteFunc(slices.Clone(servers), gone)
}
