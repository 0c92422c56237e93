package rt

// EDFVD is EDF with virtual deadlines and degraded service (Baruah et al., JACM 62(2), 2015; degraded service:
// Liu et al., RTSS 2016, theorem 2). While nobody overruns, servers that may escalate run with
// the deadline x*T and their low budget. At the first overrun all of them get their period back as the
// deadline and High as the budget, and at that moment the others are squeezed to their Floor.
// With LL and LH the bandwidths of the others before and after, HL and HH those of the escalating, and
// theta the capacity, the set passes when some x satisfies
//
//	HL/(theta-LL) <= x <= 1  and  x*LL + (1-x)*LH + HH <= theta
//
// The rest of the core, 1-theta, counts as a server that is never squeezed. Deadlines must equal
// periods, and no server may be Limited.
func EDFVD(core Core, servers []Server) Verdict {
	_, v := virtualDeadline(core, servers)
	return v
}

// virtualDeadline is the smallest x of EDFVD in PPM.
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
	theta := core.Capacity
	v := judge(TestEDFVD, max(sum(ll, hl), sum(lh, hh)), theta)
	if !v.Admitted || ll == theta {
		return OneCore, v
	}
	// Every figure is at most one core here, so the products stay below 2^41.
	x := ratio(int64(hl), int64(theta-ll))
	if int64(x)*int64(ll-lh) > int64(theta-lh-hh)*int64(OneCore) {
		return x, v.refuse(ReasonModeSwitch, "")
	}
	return x, v
}

// Floor is how far the server may be squeezed, in microseconds: half its low budget, and not below the
// granularity, under which a budget means nothing. Servers that may escalate are not squeezed.
func (s Server) Floor(granularity int64) int64 {
	if s.MayEscalate() {
		return s.Low
	}
	return min(s.Low, max(s.Low-s.Low/2, granularity))
}
