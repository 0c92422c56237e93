package rt

// EDFVD is EDF with virtual deadlines and degraded service (Baruah et al., JACM 62(2), 2015; degraded
// service: Liu et al., RTSS 2016). While no server overruns, servers that may escalate run with the
// deadline x*T and their low budget. At the first overrun all of them get their period back as the
// deadline and High as the budget, and at that moment the others are squeezed to their Floor. When the
// core is idle all is as before. With LL and LH the bandwidths of the others before and after, HL and
// HH those of the escalating, and theta the capacity, the set passes when some x satisfies
//
//	HL/x + LL <= theta  and  x*LL + (1-x)*LH + HH <= theta  and  x <= 1
//
// The rest of the core, 1-theta, counts as a server that is never squeezed. The largest x of the second
// inequality is taken, and the first is checked with the deadlines rounded down to microseconds.
// Deadlines must equal periods, and no server may be Limited.
func EDFVD(core Core, servers []Server) Verdict {
	_, v := virtualDeadline(core, servers)
	return v
}

// virtualDeadline is the x of EDFVD in PPM.
func virtualDeadline(core Core, servers []Server) (PPM, Verdict) {
	var ll, lh, hl, hh PPM
	for _, s := range servers {
		if s.Window() != s.Period || s.Limited {
			return 0, judge(TestEDFVD, used(core, servers), core.Capacity).refuse(ReasonConstrainedDeadline, s.ID)
		}
		low, high := s.at(s.Low, core.Granularity), s.at(s.Guaranteed(), core.Granularity)
		if s.MayEscalate() {
			hl, hh = sum(hl, low), sum(hh, high)
		} else {
			ll, lh = sum(ll, low), sum(lh, s.at(s.Floor(core.Granularity), core.Granularity))
		}
	}
	theta := max(0, core.Capacity)
	v := judge(TestEDFVD, max(sum(ll, hl), sum(lh, hh)), theta)
	if !v.Admitted {
		return 0, v
	}
	x := OneCore
	if ll > lh { // every figure is at most one core here: the product stays below 2^41
		x = min(x, (theta-lh-hh)*OneCore/(ll-lh))
	}
	if early := sum(ll, earlyDemand(core, servers, x)); early > theta {
		return x, v.refuse(ReasonModeSwitch, "")
	}
	return x, v
}

// earlyDemand is HL/x: what escalating servers take when their low budgets are due at virtual deadlines.
func earlyDemand(core Core, servers []Server, x PPM) PPM {
	total := PPM(0)
	for _, s := range servers {
		if s.MayEscalate() {
			total = sum(total, ratio(withLateness(s.Low, core.Granularity), VirtualDeadline(s, x)))
		}
	}
	return total
}

// VirtualDeadline is the relative deadline, in microseconds, that a server has until the first overrun
// when the factor is x.
func VirtualDeadline(s Server, x PPM) int64 { return s.Period * int64(x) / int64(OneCore) }

// Floor is how far the server may be squeezed, in microseconds: half its low budget, and not below the
// granularity, under which a budget means nothing. Only servers of criticality Low are squeezed.
func (s Server) Floor(granularity int64) int64 {
	if s.Criticality != Low {
		return s.Low
	}
	return min(s.Low, max(s.Low-s.Low/2, granularity))
}
