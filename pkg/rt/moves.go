package rt

import (
	"cmp"
	"maps"
	"slices"
)

// displace finds the moves by which s gets the one of the cores where the fewest others must leave, the
// first of them at equal numbers. All who leave are less critical and find another core.
func (a *arrangement) displace(loads []Load, s Server, cores []int) (Placement, bool) {
	var best Placement
	for _, id := range cores {
		i := slices.IndexFunc(loads, func(l Load) bool { return l.ID == id })
		if i < 0 {
			continue
		}
		victims, ok := victims(loads[i], s, func(o Server) bool { return !a.in.Held[o.ID] })
		if !ok || (best != nil && len(victims)+1 >= len(best)) {
			continue
		}
		if moves, ok := resettle(loads, i, victims); ok {
			moves[s.ID] = id
			best = moves
		}
	}
	return best, best != nil
}

// resettle finds other cores for the victims of core i, the largest first.
func resettle(loads []Load, i int, victims []Server) (Placement, bool) {
	others := slices.Delete(slices.Clone(loads), i, i+1)
	ordered := slices.Clone(victims)
	slices.SortFunc(ordered, func(a, b Server) int {
		return cmp.Or(cmp.Compare(b.Charge(0), a.Charge(0)), cmp.Compare(a.ID, b.ID))
	})
	moves := Placement{}
	for _, v := range ordered {
		core, _, ok := BestCore(others, v)
		if !ok {
			return nil, false
		}
		at := slices.IndexFunc(others, func(l Load) bool { return l.ID == core })
		others[at].Servers = append(slices.Clip(others[at].Servers), v)
		moves[v.ID] = core
	}
	return moves, true
}

// restore finds the moves by which s gets its witness core. Servers on cores that do not pass go back
// to their own witness cores, core after core; less critical ones without a witness leave.
func (a *arrangement) restore(s Server) (Placement, bool) {
	w, ok := a.witness(s.ID)
	if !ok {
		return nil, false
	}
	next := maps.Clone(a.at)
	next[s.ID] = w
	restored := map[int]bool{}
	for range len(a.cores) + 1 { // each round restores one more core
		bad, found := a.firstBad(next)
		if !found {
			moves := difference(a.at, next)
			return moves, !a.movesHeld(moves, s)
		}
		if restored[bad] {
			return nil, false
		}
		restored[bad] = true
		a.sendBack(next, bad, s)
	}
	return nil, false
}

// movesHeld tells whether any but s are moved who are in other hands.
func (a *arrangement) movesHeld(moves Placement, s Server) bool {
	for id := range moves {
		if id != s.ID && a.in.Held[id] {
			return true
		}
	}
	return false
}

// sendBack moves servers that are not at their witness core off a core, for the sake of s.
func (a *arrangement) sendBack(next Placement, core int, s Server) {
	for _, id := range slices.Sorted(maps.Keys(next)) {
		if next[id] != core {
			continue
		}
		if home, ok := a.witness(id); ok {
			next[id] = home
		} else if a.servers[id].Criticality < s.Criticality {
			delete(next, id)
		}
	}
}

func (a *arrangement) firstBad(at Placement) (int, bool) {
	for _, load := range a.loads(at) {
		if !Holds(load.Core, load.Servers).Admitted {
			return load.ID, true
		}
	}
	return NoCore, false
}

// difference are the moves from one placement to another.
func difference(from, to Placement) Placement {
	moves := Placement{}
	for id, core := range to {
		if before, was := from[id]; !was || before != core {
			moves[id] = core
		}
	}
	for id := range from {
		if _, stays := to[id]; !stays {
			moves[id] = NoCore
		}
	}
	return moves
}

func serversOn(loads []Load, core int) []Server {
	for _, l := range loads {
		if l.ID == core {
			return l.Servers
		}
	}
	return nil
}
