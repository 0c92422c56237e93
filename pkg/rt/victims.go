package rt

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

// exactVictims is up to how many candidates every subset is looked at.
const exactVictims = 12

// Victims finds the servers that must leave the core so that s fits: of strictly lower criticality, as few
// as possible, then of the lowest criticality, then of the smallest bandwidth, then by ID. It is exact for up
// to 12 candidates. Beyond, the number and the criticalities are exact under EDF, and the bandwidth is
// improved by exchanges of one victim; under other policies the set is minimal in that every victim is needed.
// Nothing has to leave when s fits already; ok is false when s does not fit even alone with its equals.
func Victims(load Load, s Server) (victims []Server, ok bool) {
	others := without(load.Servers, s.ID)
	lower := slices.DeleteFunc(slices.Clone(others), func(o Server) bool { return o.Criticality >= s.Criticality })
	return cheapest(lower, fitsWithout(load, others, s), load.Granularity)
}

// fitsWithout tells whether s fits when some of the others are gone. Where only bandwidth counts, it adds up
// what they give back.
func fitsWithout(load Load, others []Server, s Server) func(gone []Server) bool {
	v := Admit(load.Core, others, s)
	if load.Policy == EDF && v.Reason == ReasonCoreFull && valid(others) && overReserve(load.Core, append(slices.Clip(others), s)) < 0 {
		missing := sum(v.Used, v.Need) - max(0, v.Limit)
		return func(gone []Server) bool { return charges(gone, load.Granularity) >= missing }
	}
	return func(gone []Server) bool { return Admit(load.Core, remove(others, gone), s).Admitted }
}

// cheapest is the cheapest set of candidates without which fits is true. fits must stay true when
// more leave.
func cheapest(candidates []Server, fits func(gone []Server) bool, granularity int64) ([]Server, bool) {
	if fits(nil) {
		return nil, true
	}
	if !fits(candidates) {
		return nil, false
	}
	ordered := slices.Clone(candidates)
	slices.SortFunc(ordered, func(a, b Server) int {
		return cmp.Or(cmp.Compare(a.Criticality, b.Criticality), cmp.Compare(b.Charge(granularity), a.Charge(granularity)), cmp.Compare(a.ID, b.ID))
	})
	if len(ordered) <= exactVictims {
		return cheapestOfAll(ordered, fits, granularity), true
	}
	return cheapestByExchange(ordered, fits, granularity), true
}

// cheapestOfAll looks at every subset, the small ones first.
func cheapestOfAll(ordered []Server, fits func([]Server) bool, granularity int64) []Server {
	gone := make([]Server, 0, len(ordered))
	for size := 1; size < len(ordered); size++ {
		var best []Server
		for mask := uint(1)<<size - 1; mask < 1<<len(ordered); mask = nextSubset(mask) {
			gone = pick(gone[:0], ordered, mask)
			if fits(gone) && (best == nil || costs(gone, best, granularity) < 0) {
				best = slices.Clone(gone)
			}
		}
		if best != nil {
			return best
		}
	}
	return ordered
}

// nextSubset is the next larger number with as many bits set (Gosper's hack).
func nextSubset(mask uint) uint {
	low := mask & -mask
	ripple := mask + low
	return ripple | (mask^ripple)>>(2+bits.TrailingZeros(low))
}

// pick appends the servers whose bits are set.
func pick(out, servers []Server, mask uint) []Server {
	for ; mask != 0; mask &= mask - 1 {
		out = append(out, servers[bits.TrailingZeros(mask)])
	}
	return out
}

// cheapestByExchange takes the largest until it fits, then replaces victims by cheaper candidates.
func cheapestByExchange(ordered []Server, fits func([]Server) bool, granularity int64) []Server {
	bySize := slices.Clone(ordered)
	slices.SortStableFunc(bySize, func(a, b Server) int { return cmp.Compare(b.Charge(granularity), a.Charge(granularity)) })
	n := sort.Search(len(bySize), func(n int) bool { return fits(bySize[:n]) })
	gone := prune(slices.Clone(bySize[:n]), fits)
	for range ordered { // each round makes the set strictly cheaper; more rounds than candidates bring little
		if !exchange(gone, ordered, fits, granularity) {
			break
		}
	}
	return gone
}

// prune drops the victims that are not needed, the most critical first.
func prune(gone []Server, fits func([]Server) bool) []Server {
	slices.SortStableFunc(gone, func(a, b Server) int { return cmp.Compare(b.Criticality, a.Criticality) })
	for i := 0; i < len(gone); {
		if fewer := slices.Delete(slices.Clone(gone), i, i+1); fits(fewer) {
			gone = fewer
			continue
		}
		i++
	}
	return gone
}

// exchange replaces one victim by the cheapest candidate that will do; false when there is none.
func exchange(gone, ordered []Server, fits func([]Server) bool, granularity int64) bool {
	for i, old := range gone {
		for j := range ordered {
			c := ordered[len(ordered)-1-j]
			if compareVictims(c, old, granularity) >= 0 || slices.ContainsFunc(gone, func(g Server) bool { return g.ID == c.ID }) {
				continue
			}
			gone[i] = c
			if fits(gone) {
				return true
			}
			gone[i] = old
		}
	}
	return false
}

// costs compares two sets of the same size: criticalities from the highest down, bandwidth, IDs.
func costs(a, b []Server, granularity int64) int {
	return cmp.Or(
		slices.Compare(criticalitiesOf(a), criticalitiesOf(b)),
		cmp.Compare(charges(a, granularity), charges(b, granularity)),
		slices.Compare(idsOf(a), idsOf(b)),
	)
}

func compareVictims(a, b Server, granularity int64) int {
	return cmp.Or(cmp.Compare(a.Criticality, b.Criticality), cmp.Compare(a.Charge(granularity), b.Charge(granularity)))
}

// criticalitiesOf lists criticalities from the highest down.
func criticalitiesOf(servers []Server) []Criticality {
	out := make([]Criticality, 0, len(servers))
	for _, s := range servers {
		out = append(out, s.Criticality)
	}
	slices.SortFunc(out, func(a, b Criticality) int { return cmp.Compare(b, a) })
	return out
}

func charges(servers []Server, granularity int64) PPM {
	total := PPM(0)
	for _, s := range servers {
		total = sum(total, s.Charge(granularity))
	}
	return total
}

// idsOf are the servers' IDs, sorted.
func idsOf(servers []Server) []string {
	out := make([]string, 0, len(servers))
	for _, s := range servers {
		out = append(out, s.ID)
	}
	slices.Sort(out)
	return out
}

// remove are the servers but for those gone.
func remove(servers, gone []Server) []Server {
	return without(servers, idsOf(gone)...)
}
