package rt

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

// exactVictims is up to how many candidates every subset is looked at.
const exactVictims = 12

// Victims finds the servers that must leave the core so that s fits: of strictly lower criticality, as
// few as possible, then of the lowest criticality, then of the smallest bandwidth, then by ID. It is
// exact for up to 12 candidates. Beyond, the number and the criticalities are exact under EDF, and the
// bandwidth is improved by exchanges of one victim; under other policies the set is minimal in that
// every victim is needed. Nothing has to leave when s fits already; ok is false when s does not fit
// even alone with its equals.
func Victims(load Load, s Server) ([]Server, bool) {
	return victims(load, s, func(Server) bool { return true })
}

// victims are those among servers that may leave.
func victims(load Load, s Server, may func(Server) bool) ([]Server, bool) {
	others := without(load.Servers, s.ID)
	lower := slices.DeleteFunc(slices.Clone(others), func(o Server) bool { return o.Criticality >= s.Criticality || !may(o) })
	return cheapest(lower, fitsWithout(load, others, s), load.Granularity)
}

// removal says whether what is wanted fits when some servers are gone; more of them never harm.
type removal struct {
	fits func(gone []Server) bool
	// byBandwidth: what they give back is all that counts, so of equally many the largest are the best.
	byBandwidth bool
}

// fitsWithout tells whether s fits when some of the others are gone.
func fitsWithout(load Load, others []Server, s Server) removal {
	v := Admit(load.Core, others, s)
	byBandwidth := load.Policy == EDF && v.Reason == ReasonCoreFull && valid(others)
	if byBandwidth && overReserve(load.Core, append(slices.Clip(others), s)) < 0 {
		missing := sum(v.Used, v.Need) - max(0, v.Limit)
		return removal{func(gone []Server) bool { return charges(gone, load.Granularity) >= missing }, true}
	}
	return removal{func(gone []Server) bool { return Admit(load.Core, remove(others, gone), s).Admitted }, false}
}

// cheapest is the cheapest set of candidates without which it fits.
func cheapest(candidates []Server, r removal, granularity int64) ([]Server, bool) {
	if r.fits(nil) {
		return nil, true
	}
	if !r.fits(candidates) {
		return nil, false
	}
	bySize := slices.Clone(candidates)
	slices.SortFunc(bySize, func(a, b Server) int {
		return cmp.Or(cmp.Compare(b.Charge(granularity), a.Charge(granularity)), cmp.Compare(a.ID, b.ID))
	})
	n := sort.Search(len(bySize), func(n int) bool { return r.fits(bySize[:n]) })
	if len(bySize) > exactVictims {
		return cheapestByExchange(bySize, n, r.fits, granularity), true
	}
	if !r.byBandwidth {
		n = 1
	}
	return cheapestOfAll(bySize, n, r.fits, granularity), true
}

// cheapestOfAll looks at every subset of at least n candidates, the small ones first.
func cheapestOfAll(candidates []Server, n int, fits func([]Server) bool, granularity int64) []Server {
	gone := make([]Server, 0, len(candidates))
	for size := n; size < len(candidates); size++ {
		var best []Server
		for mask := uint(1)<<size - 1; mask < 1<<len(candidates); mask = nextSubset(mask) {
			gone = pick(gone[:0], candidates, mask)
			if fits(gone) && (best == nil || costs(gone, best, granularity) < 0) {
				best = slices.Clone(gone)
			}
		}
		if best != nil {
			return best
		}
	}
	return candidates
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

// cheapestByExchange finds how few of the n victims must be of each criticality, taking the largest of
// each, and then replaces victims by smaller ones of their criticality.
func cheapestByExchange(bySize []Server, n int, fits func([]Server) bool, granularity int64) []Server {
	gone, ok := leastCritical(bySize, n, fits)
	if !ok {
		gone = slices.Clone(bySize[:n])
	}
	gone = prune(gone, fits)
	for range bySize { // each round makes the set strictly cheaper; more rounds than candidates bring little
		if !exchange(gone, bySize, fits, granularity) {
			break
		}
	}
	return gone
}

// leastCritical takes n servers, the largest of each criticality, and as few as will do of the higher ones.
func leastCritical(bySize []Server, n int, fits func([]Server) bool) ([]Server, bool) {
	var gone []Server
	for c := High; c > Low; c-- {
		level := largest(bySize, n, func(s Server) bool { return s.Criticality == c })
		below := largest(bySize, n, func(s Server) bool { return s.Criticality < c })
		k := 0
		for !take(gone, level, below, k, n, fits) {
			if k++; k > len(level) || len(gone)+k > n {
				return nil, false
			}
		}
		gone = append(gone, level[:k]...)
	}
	lows := largest(bySize, n-len(gone), func(s Server) bool { return s.Criticality == Low })
	return append(gone, lows...), true
}

// take reports whether k of one criticality do, with lower ones up to n.
func take(gone, level, below []Server, k, n int, fits func([]Server) bool) bool {
	rest := n - len(gone) - k
	return rest <= len(below) && fits(slices.Concat(gone, level[:k], below[:rest]))
}

// largest are the first n for which keep is true.
func largest(bySize []Server, n int, keep func(Server) bool) []Server {
	var out []Server
	for _, s := range bySize {
		if len(out) < n && keep(s) {
			out = append(out, s)
		}
	}
	return out
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

// exchange replaces one victim by the smallest of its criticality that will do; false when there is none.
func exchange(gone, bySize []Server, fits func([]Server) bool, granularity int64) bool {
	for i, old := range gone {
		for _, c := range slices.Backward(bySize) {
			if c.Criticality != old.Criticality || c.Charge(granularity) >= old.Charge(granularity) || contains(gone, c.ID) {
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

func contains(servers []Server, id string) bool {
	return slices.ContainsFunc(servers, func(s Server) bool { return s.ID == id })
}

// costs compares two sets of the same size: criticalities from the highest down, bandwidth, IDs.
func costs(a, b []Server, granularity int64) int {
	return cmp.Or(
		slices.Compare(criticalitiesOf(a), criticalitiesOf(b)),
		cmp.Compare(charges(a, granularity), charges(b, granularity)),
		slices.Compare(idsOf(a), idsOf(b)),
	)
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
