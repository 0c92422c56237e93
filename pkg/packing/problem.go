package packing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Group is pods that are alike.
type Group struct {
	// Requests of one pod by resource, in the order of the types' capacity, each at least 0.
	Requests []float64
	// Count of the pods, at least 1.
	Count int
	// Types that it may run on, by their index; nil: all.
	Types []int
}

// slack is how much more than its capacity a machine may hold, as a share of it: sums of requests are rounded.
const slack = 1e-9

// bin is a type as the solvers see it, with the groups that it takes.
type bin struct {
	cost     float64
	capacity []float64
	takes    []bool // by group: it may run there, and one pod fits
}

// problem is what is left to pack: every group has a pod that requests something and a bin that takes it.
type problem struct {
	groups []Group
	bins   []bin // in order of their cost
}

// newProblem leaves out groups that request nothing, resources that no pod requests, types that cost nothing that can
// be counted, and types that another one replaces. The error says which group no type takes.
func newProblem(types []Type, groups []Group) (*problem, error) {
	p := &problem{}
	demanded := demandedResources(groups)
	var numbers []int // of the groups that are kept
	var may [][]bool  // by group and type; nil: all
	for i, g := range groups {
		if g.Count <= 0 || !slices.ContainsFunc(g.Requests, func(x float64) bool { return x > 0 }) {
			continue
		}
		var allowed []bool
		if g.Types != nil {
			allowed = make([]bool, len(types))
			for _, t := range g.Types {
				allowed[t] = true
			}
		}
		g.Requests = pick(g.Requests, demanded)
		p.groups, numbers, may = append(p.groups, g), append(numbers, i), append(may, allowed)
	}
	for i, t := range types {
		if !(t.Cost > 0) || math.IsInf(t.Cost, 0) {
			continue
		}
		b := bin{cost: t.Cost, capacity: pick(t.Capacity, demanded), takes: make([]bool, len(p.groups))}
		for g, group := range p.groups {
			b.takes[g] = (may[g] == nil || may[g][i]) && fits(group.Requests, 1, b.capacity) > 0
		}
		p.bins = append(p.bins, b)
	}
	p.bins = withoutReplaced(p.bins)
	for g := range p.groups {
		if !slices.ContainsFunc(p.bins, func(b bin) bool { return b.takes[g] }) {
			return nil, fmt.Errorf("group %d: %w", numbers[g], ErrUnplaceable)
		}
	}
	return p, nil
}

// demandedResources are those that some pod requests.
func demandedResources(groups []Group) []int {
	var out []int
	if len(groups) == 0 {
		return nil
	}
	for r := range groups[0].Requests {
		if slices.ContainsFunc(groups, func(g Group) bool { return g.Count > 0 && g.Requests[r] > 0 }) {
			out = append(out, r)
		}
	}
	return out
}

func pick(values []float64, indexes []int) []float64 {
	out := make([]float64, len(indexes))
	for i, at := range indexes {
		out[i] = values[at]
	}
	return out
}

// fits is how many pods with these requests fit into what is left, at most atMost.
func fits(requests []float64, atMost int, left []float64) int {
	n := float64(atMost)
	for r, want := range requests {
		if want > 0 {
			n = min(n, math.Floor(left[r]/want*(1+slack)))
		}
	}
	return int(max(0, n))
}

// withoutReplaced drops each bin of which another has as much of each resource, takes the same groups and costs no more.
func withoutReplaced(bins []bin) []bin {
	slices.SortStableFunc(bins, func(a, b bin) int { return cmp.Compare(a.cost, b.cost) })
	var kept []bin
	for _, b := range bins {
		if slices.Contains(b.takes, true) && !slices.ContainsFunc(kept, b.replacedBy) {
			kept = append(kept, b)
		}
	}
	return kept
}

func (b bin) replacedBy(other bin) bool {
	for r := range b.capacity {
		if other.capacity[r] < b.capacity[r] {
			return false
		}
	}
	for g := range b.takes {
		if b.takes[g] && !other.takes[g] {
			return false
		}
	}
	return true
}
