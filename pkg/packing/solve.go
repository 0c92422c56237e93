package packing

import (
	"context"
	"math"
	"slices"
)

// MaxGroups bounds the groups of one problem. The basis of the linear program has their square.
const MaxGroups = 512

// Solution is what is known of the cheapest packing of whole pods on whole machines.
type Solution struct {
	// Bound is what no packing costs less than.
	Bound float64
	// Cost of the cheapest packing that was found; at least Bound. The cheapest of all lies between the two.
	Cost float64
}

// Exact reports whether the packing that was found is the cheapest.
func (s Solution) Exact() bool { return s.Cost <= s.Bound*(1+closeEnough) }

// Solve bounds from both sides what it costs at least to run all pods on machines of these types, each of which may be
// opened any number of times: heterogeneous vector bin packing. Up to 12 pods are solved exactly. More are bounded from
// below by the linear program over loads of machines, which knows that pods and machines are whole on each machine, and
// packed by what that program says. It stops soon after ctx ends; the bound that it has proven by then is valid.
//
// It knows capacities and which types a group may have, and nothing of affinity between pods, spread, volumes or
// disruption: a bound stays one when packings are forbidden. The error is ErrUnplaceable, with the number of a group
// that no type takes, or says that there are too many groups.
func Solve(ctx context.Context, types []Type, groups []Group) (Solution, error) {
	p, err := newProblem(types, groups)
	if err != nil || len(p.groups) == 0 {
		return Solution{}, err
	}
	if len(p.groups) > MaxGroups {
		return Solution{}, &TooManyGroupsError{Groups: len(p.groups)}
	}
	if cost, ok := p.exact(); ok {
		return Solution{Bound: cost, Cost: cost}, nil
	}
	g := newGeneration(p)
	g.run(ctx)
	cost := min(g.packed, p.cover(ctx, g))
	return Solution{Bound: min(g.bound, cost), Cost: cost}, nil
}

// cover packs all pods: by whole loads of the linear program first, and the rest by its prices.
func (p *problem) cover(ctx context.Context, g *generation) float64 {
	cost := 0.0
	left := make([]int, len(p.groups))
	for i := range p.groups {
		left[i] = p.groups[i].Count
	}
	for i, c := range g.basis {
		if !c.surplus {
			cost += p.pack(c.load, left, int(math.Floor(g.amounts[i]+smallestPivot)))
		}
	}
	rest, _ := p.packRest(ctx, g.prices, left)
	return cost + rest
}

// packRest packs the pods that are left: the load that is worth most for its cost under these prices, as often as all
// of it is left, again and again. A load that is looked for later is not worth more, as fewer pods are left: only the
// best one is looked for anew. What is left when ctx ends is packed group by group.
func (p *problem) packRest(ctx context.Context, prices []float64, left []int) (cost float64, loads []load) {
	values := make([]float64, len(p.groups))
	worth := make([]float64, len(p.bins)) // of a load for its cost, when it was looked for last
	for i := range values {
		values[i] = prices[i] + p.alone(i).cost/1e6 // a pod that costs nothing more has to be packed, too
	}
	for i := range worth {
		worth[i] = math.Inf(1)
	}
	for slices.ContainsFunc(left, func(n int) bool { return n > 0 }) {
		l := p.mostWorth(ctx, values, worth, left)
		if l.counts == nil {
			break
		}
		cost += p.pack(l, left, math.MaxInt)
		loads = append(loads, l)
	}
	for i, n := range left {
		if n > 0 {
			c := p.alone(i)
			cost += c.cost * math.Ceil(float64(n)/c.counts[i])
			left[i] = 0
		}
	}
	return cost, loads
}

// mostWorth is the load that is worth most for its cost; without counts when there is none, or ctx has ended.
func (p *problem) mostWorth(ctx context.Context, values, worth []float64, left []int) load {
	best, reached := load{}, 0.0
	for ctx.Err() == nil {
		next := -1
		for i, w := range worth {
			if w > reached && (next < 0 || w > worth[next]) {
				next = i
			}
		}
		if next < 0 {
			return best
		}
		k := newKnapsack(p, p.bins[next], values, left)
		k.search(searches[0])
		if worth[next] = k.value / p.bins[next].cost; worth[next] > reached {
			reached, best = worth[next], k.load(next, len(left))
		}
	}
	return load{}
}

// pack opens machines with this load as long as all of it is left, at most atMost. It returns what they cost.
func (p *problem) pack(l load, left []int, atMost int) float64 {
	n := atMost
	for g, count := range l.counts {
		if count > 0 {
			n = min(n, left[g]/count)
		}
	}
	for g, count := range l.counts {
		left[g] -= n * count
	}
	return float64(n) * p.bins[l.bin].cost
}
