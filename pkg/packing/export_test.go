package packing

import "context"

// SolveLarge solves a problem of any size as one of many pods is solved.
func SolveLarge(ctx context.Context, types []Type, groups []Group) (Solution, error) {
	p, err := newProblem(types, groups)
	if err != nil || len(p.groups) == 0 {
		return Solution{}, err
	}
	g := newGeneration(p)
	g.run(ctx)
	return Solution{Bound: g.bound, Cost: min(g.packed, p.cover(ctx, g))}, nil
}

// Knapsack returns the value of the best load that is found, and what none is worth more than.
func Knapsack(capacity []float64, values []float64, groups []Group) (value, most float64) {
	p := &problem{groups: groups}
	b := bin{cost: 1, capacity: capacity, takes: make([]bool, len(groups))}
	counts := make([]int, len(groups))
	for i, g := range groups {
		b.takes[i], counts[i] = true, g.Count
	}
	k := newKnapsack(p, b, values, counts)
	k.search(100)
	return k.value, k.limit()
}
