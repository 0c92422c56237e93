package packing

import (
	"math"
	"math/bits"
)

// maxExact is how many pods are packed exactly: the time grows as 3 to their power, half a million steps for 12.
const maxExact = 12

// exact finds the cheapest packing of few pods by dynamic programming over sets of them: the cheapest way to pack a set
// is a machine for the first of its pods with some others, and the cheapest way to pack the rest.
func (p *problem) exact() (float64, bool) {
	var pods []int // the group of each
	for g, group := range p.groups {
		if len(pods)+group.Count > maxExact {
			return 0, false
		}
		for range group.Count {
			pods = append(pods, g)
		}
	}
	together := p.costsOfSets(pods)
	best := make([]float64, len(together))
	for set := 1; set < len(together); set++ {
		first := 1 << bits.TrailingZeros(uint(set)) //nolint:gosec // at most 2^12
		best[set] = math.Inf(1)
		for others := set &^ first; ; others = (others - 1) & (set &^ first) {
			best[set] = min(best[set], together[others|first]+best[set&^(others|first)])
			if others == 0 {
				break
			}
		}
	}
	return best[len(best)-1], true
}

// costsOfSets is what the cheapest machine costs that holds a set of pods alone, by the set.
func (p *problem) costsOfSets(pods []int) []float64 {
	costs := make([]float64, 1<<len(pods))
	resources := len(p.groups[0].Requests)
	sums := make([][]float64, len(costs))
	sums[0] = make([]float64, resources)
	for set := 1; set < len(costs); set++ {
		last := bits.Len(uint(set)) - 1 //nolint:gosec // at most 2^12
		sums[set] = make([]float64, resources)
		for r, x := range p.groups[pods[last]].Requests {
			sums[set][r] = sums[set&^(1<<last)][r] + x
		}
		costs[set] = p.cheapest(set, pods, sums[set])
	}
	return costs
}

func (p *problem) cheapest(set int, pods []int, sum []float64) float64 {
	for _, b := range p.bins { // the cheapest first
		if fits(sum, 1, b.capacity) == 1 && b.takesAll(set, pods) {
			return b.cost
		}
	}
	return math.Inf(1)
}

func (b bin) takesAll(set int, pods []int) bool {
	for i, g := range pods {
		if set&(1<<i) != 0 && !b.takes[g] {
			return false
		}
	}
	return true
}
