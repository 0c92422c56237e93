package packing

import (
	"cmp"
	"context"
	"math"
	"slices"
)

const (
	// maxRounds bounds how often loads are looked for. The bound is valid after any number of rounds.
	maxRounds = 4000
	// smoothing is the weight of the prices of the best bound.
	smoothing = 0.65
	// closeEnough ends the generation: the bound is this near to the optimum of the linear program.
	closeEnough = 1e-6
	// smallestPivot is what the basis is divided by at least.
	smallestPivot = 1e-9
)

// generation solves the linear relaxation of the choice of loads by column generation (Gilmore and Gomory, A linear
// programming approach to the cutting-stock problem, 1961): the least cost of loads, any part of each, that together
// hold all pods. It is the revised simplex method, whose columns are found by knapsacks.
type generation struct {
	problem *problem
	counts  []int       // pods by group
	basis   []column    // one for each group
	inverse [][]float64 // of the basis
	amounts []float64   // of each column of the basis
	bound   float64     // no packing costs less
	prices  []float64   // of one pod by group, under which no load is worth more than its machine
	packed  float64     // what the packing costs that it began with
}

// column is a load, or pods that are packed beyond their number (a surplus, which costs nothing).
type column struct {
	cost    float64
	counts  []float64
	load    load
	surplus bool
}

// newGeneration begins with each group alone on the machine that is cheapest for it.
func newGeneration(p *problem) *generation {
	n := len(p.groups)
	g := &generation{problem: p, counts: make([]int, n), basis: make([]column, n), inverse: make([][]float64, n), amounts: make([]float64, n)}
	for i := range p.groups {
		g.counts[i] = p.groups[i].Count
		c := p.alone(i)
		held := c.counts[i]
		g.basis[i], g.inverse[i], g.amounts[i] = c, make([]float64, n), float64(g.counts[i])/held
		g.inverse[i][i] = 1 / held
	}
	prices, most := p.pricesOfRequests()
	g.prices = prices
	g.keep(prices, most*(1+slack)) // a machine may hold a little more than its capacity
	return g
}

// alone is the load of one group only that costs least for each pod.
func (p *problem) alone(group int) column {
	best, least := column{}, math.Inf(1)
	for i, b := range p.bins {
		if !b.takes[group] {
			continue
		}
		n := fits(p.groups[group].Requests, p.groups[group].Count, b.capacity)
		if each := b.cost / float64(n); n > 0 && each < least {
			least = each
			counts := make([]int, len(p.groups))
			counts[group] = n
			best = p.columnOf(load{bin: i, counts: counts})
		}
	}
	return best
}

func (p *problem) columnOf(l load) column {
	c := column{cost: p.bins[l.bin].cost, counts: make([]float64, len(l.counts)), load: l}
	for g, n := range l.counts {
		c.counts[g] = float64(n)
	}
	return c
}

// run generates loads until none is worth more than its machine, or until its context ends. It looks for them under
// prices between the present ones and those of the best bound, as the present ones leap from one end to the other
// (Wentges, Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming, 1997). Where that finds nothing,
// it goes nearer to the present ones (Pessoa et al., Automation and combination of linear-programming based
// stabilization techniques in column generation, 2018).
func (g *generation) run(ctx context.Context) {
	cost, loads := g.problem.packRest(ctx, g.prices, slices.Clone(g.counts))
	g.packed = cost
	for _, l := range loads {
		g.enterAll([]load{l})
	}
	misses := -1 // the first round is at the prices of divided pods: whole ones may be worth less
	for range maxRounds {
		prices := g.shadowPrices()
		if i := slices.IndexFunc(prices, func(p float64) bool { return p < -tolerance }); i >= 0 {
			counts := make([]float64, len(prices))
			counts[i] = -1
			if !g.enter(column{counts: counts, surplus: true}) {
				return
			}
			continue
		}
		weight := max(0, 1-float64(misses+1)*(1-smoothing))
		for i := range prices {
			prices[i] = weight*g.prices[i] + (1-weight)*max(0, prices[i])
		}
		loads, most := g.problem.price(ctx, prices, g.counts)
		g.keep(prices, most)
		if g.cost()-g.bound <= closeEnough*g.cost() || ctx.Err() != nil {
			return
		}
		switch {
		case g.enterAll(loads):
			misses = 0
		case weight == 0:
			return
		default:
			misses++
		}
	}
}

// enterAll puts the loads into the basis that are worth more than their machine. It reports false where none is.
func (g *generation) enterAll(loads []load) (entered bool) {
	for _, l := range loads {
		c := g.problem.columnOf(l)
		worth := 0.0
		for i, p := range g.shadowPrices() {
			worth += p * c.counts[i]
		}
		if worth > c.cost*(1+tolerance) && g.enter(c) {
			entered = true
		}
	}
	return entered
}

// cost of the loads of the basis.
func (g *generation) cost() float64 {
	sum := 0.0
	for i, c := range g.basis {
		sum += c.cost * g.amounts[i]
	}
	return sum
}

// shadowPrices is what one more pod of each group costs.
func (g *generation) shadowPrices() []float64 {
	prices := make([]float64, len(g.basis))
	for i, c := range g.basis {
		if c.cost == 0 {
			continue
		}
		for j, x := range g.inverse[i] {
			prices[j] += c.cost * x
		}
	}
	return prices
}

// searches are how many branches of a knapsack are looked into at first, and how many if no load is found that is worth
// more than its machine.
var searches = []int{8, 64, 512}

// price looks for the load of each machine that is worth most, and ends with the last search or the first in which some
// are worth more than their machines. These come first, the one that is worth most for its cost before the others. most
// is what no load is worth more than, as a multiple of the cost; infinite where ctx ended before all machines were
// looked at.
func (p *problem) price(ctx context.Context, values []float64, counts []int) (loads []load, most float64) {
	type candidate struct {
		bin  int
		sack *knapsack
	}
	var candidates []candidate
	for i, b := range p.bins {
		if ctx.Err() != nil {
			return nil, math.Inf(1)
		}
		if k := newKnapsack(p, b, values, counts); len(k.items) > 0 {
			candidates = append(candidates, candidate{i, k})
		}
	}
	found := func(c candidate) float64 { return c.sack.value / p.bins[c.bin].cost }
	limit := func(c candidate) float64 { return c.sack.limit() / p.bins[c.bin].cost }
	for _, steps := range searches {
		reached := 0.0
		most = 0
		for _, c := range candidates {
			if limit(c) > 1 && ctx.Err() == nil {
				c.sack.search(steps)
			}
			reached, most = max(reached, found(c)), max(most, limit(c))
		}
		if reached > 1+tolerance || most <= 1+tolerance {
			break
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(found(b), found(a)) })
	for _, c := range candidates {
		loads = append(loads, c.sack.load(c.bin, len(counts)))
	}
	return loads, most
}

// load is the best one that was found, by group.
func (k *knapsack) load(bin, groups int) load {
	l := load{bin: bin, counts: make([]int, groups)}
	for i, n := range k.best {
		l.counts[k.items[i].group] = n
	}
	return l
}

// keep takes the bound that these prices prove, if it is better: where no load is worth more than most times its
// machine, the prices divided by it are a solution of the dual (Farley, A note on bounding a class of linear
// programming problems, including cutting stock problems, 1990). Any prices prove one, so that a search that was cut
// short costs sharpness and not truth.
func (g *generation) keep(prices []float64, most float64) {
	if !(most > 0) || math.IsInf(most, 0) {
		return
	}
	sum := 0.0
	for i, p := range prices {
		sum += p * float64(g.counts[i])
	}
	if bound := sum / most * (1 - tolerance); bound > g.bound {
		g.bound, g.prices = bound, make([]float64, len(prices))
		for i, p := range prices {
			g.prices[i] = p / most
		}
	}
}

// enter puts a column into the basis in the place of the one that it drives to zero first. It reports false where none is.
func (g *generation) enter(c column) bool {
	n := len(g.basis)
	direction := make([]float64, n)
	leaves, least := -1, math.Inf(1)
	for i, row := range g.inverse {
		for j, x := range c.counts {
			direction[i] += row[j] * x
		}
		if direction[i] > smallestPivot {
			if ratio := max(0, g.amounts[i]) / direction[i]; ratio < least {
				leaves, least = i, ratio
			}
		}
	}
	if leaves < 0 {
		return false
	}
	for i := range g.amounts {
		g.amounts[i] -= direction[i] * least
	}
	pivotOn(g.inverse, direction, leaves)
	g.basis[leaves], g.amounts[leaves] = c, least
	return true
}
