package rt

import "slices"

// Load is a core and the servers placed on it.
type Load struct {
	Core
	Servers []Server
}

// Used is the bandwidth that the servers of the load take.
func (l Load) Used() PPM { return used(l.Core, l.Servers) }

// Free is the bandwidth that is left; never negative. Under EDF a valid server fits exactly when its
// Charge is at most Free and, if it is Limited, its Step at most the EscalationReserve.
func (l Load) Free() PPM { return max(0, l.Capacity-l.Used()) }

// BestCore finds the core for a server: the first of its preferred cores that admits it, else the admitting core that its Fit
// chooses (at equal gaps the lower number). When none admits it, v is the verdict of the core that came nearest.
func BestCore(cores []Load, s Server) (core int, v Verdict, ok bool) {
	for _, id := range s.Preferred {
		i := slices.IndexFunc(cores, func(l Load) bool { return l.ID == id })
		if i < 0 {
			continue
		}
		if v := Admit(cores[i].Core, cores[i].Servers, s); v.Admitted {
			return id, v, true
		}
	}
	v = Verdict{Test: TestT1, Need: s.Charge(0), Reason: ReasonNoCore}
	found := false
	for _, l := range cores {
		next := Admit(l.Core, l.Servers, s)
		if !found || better(next, v, s.Fit) || (equal(next, v) && l.ID < core) {
			core, v, found = l.ID, next, true
		}
	}
	return core, v, v.Admitted
}

// better: an admitting core with a smaller gap, or a larger one by WorstFit; failing that, a refusing core with a larger gap.
func better(a, b Verdict, fit Fit) bool {
	if a.Admitted != b.Admitted {
		return a.Admitted
	}
	if a.Admitted && fit != WorstFit {
		return a.Free() < b.Free()
	}
	return a.Free() > b.Free()
}

func equal(a, b Verdict) bool { return a.Admitted == b.Admitted && a.Free() == b.Free() }
