// Package packing bounds what pods must cost at least, however they are placed, and scores a placement between that
// bound and the plainest placement. It computes only. Type is a machine that may be opened. Solve bounds the cheapest packing of groups of pods
// from both sides. Bound is weaker and faster, and needs only what they request together.
package packing

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize/convex/lp"
)

// Type is a kind of machine that may be opened any number of times.
type Type struct {
	// Cost of one: USD per hour, or watts.
	Cost float64
	// Capacity of one by resource, in the order of the demand.
	Capacity []float64
}

// ErrUnplaceable says that no type has some resource that is demanded.
var ErrUnplaceable = errors.New("no machine has it")

// TooManyGroupsError says that pods are of more different kinds than Solve looks at.
type TooManyGroupsError struct{ Groups int }

func (e *TooManyGroupsError) Error() string {
	return fmt.Sprintf("%d groups of pods; want at most %d", e.Groups, MaxGroups)
}

// tolerance is what the simplex method may be off by.
const tolerance = 1e-9

// Bound returns the least that machines of these types can cost which together have the demanded resources: the linear
// relaxation of vector bin packing, in which machines and pods may be divided (Caprara and Toth, Lower bounds and algorithms
// for the 2-dimensional vector packing problem, 2001). No placement of whole pods on whole machines costs less. The demand is by
// resource, each at least 0. Types whose cost is not a finite number above 0 are left out.
func Bound(types []Type, demand []float64) (float64, error) {
	types = slices.DeleteFunc(slices.Clone(types), func(t Type) bool { return !(t.Cost > 0) || math.IsInf(t.Cost, 0) })
	var rows []int // resources that are demanded
	weak := 0.0
	for r, want := range demand {
		if want <= 0 {
			continue
		}
		rows = append(rows, r)
		cheapest := math.Inf(1)
		for _, t := range types {
			if t.Capacity[r] > 0 {
				cheapest = min(cheapest, t.Cost/t.Capacity[r])
			}
		}
		if math.IsInf(cheapest, 1) {
			return 0, fmt.Errorf("resource %d: %w", r, ErrUnplaceable)
		}
		weak = max(weak, cheapest*want)
	}
	if len(rows) < 2 {
		return weak, nil
	}
	return max(weak, simplex(undominated(types, rows), rows, demand)), nil
}

// undominated drops the types of which another has as much of each resource for no more.
func undominated(types []Type, rows []int) []Type {
	var kept []Type
	slices.SortStableFunc(types, func(a, b Type) int {
		switch {
		case a.Cost < b.Cost:
			return -1
		case a.Cost > b.Cost:
			return 1
		}
		return 0
	})
	for _, t := range types {
		if !slices.ContainsFunc(kept, func(k Type) bool { return k.covers(t, rows) }) {
			kept = append(kept, t)
		}
	}
	return kept
}

func (t Type) covers(o Type, rows []int) bool {
	for _, r := range rows {
		if t.Capacity[r] < o.Capacity[r] {
			return false
		}
	}
	return true
}

// simplex solves the relaxation in standard form, with a surplus variable for each resource; 0 where it finds no solution,
// which is a bound, too. Rows are divided by their demand and columns by their cost, so that numbers are near 1.
func simplex(types []Type, rows []int, demand []float64) float64 {
	n, m := len(types), len(rows)
	cost := make([]float64, n+m)
	a := mat.NewDense(m, n+m, nil)
	b := make([]float64, m)
	for i, r := range rows {
		b[i] = 1
		a.Set(i, n+i, -1)
		for j, t := range types {
			a.Set(i, j, t.Capacity[r]/demand[r]/t.Cost)
		}
	}
	for j := range types {
		cost[j] = 1
	}
	optimum, _, err := lp.Simplex(cost, a, b, tolerance, nil)
	if err != nil || math.IsNaN(optimum) {
		return 0
	}
	return optimum * (1 - tolerance)
}

// pricesOfRequests prices each pod by what it requests, so that all pods together are worth most while no machine's
// capacity is worth more than the machine: the dual of Bound, in which pods and machines may be divided. most is what a
// machine's capacity is worth at most, as a multiple of its cost: 1, but for rounding. Prices are 0 where the simplex
// method finds no solution.
func (p *problem) pricesOfRequests() (prices []float64, most float64) {
	prices = make([]float64, len(p.groups))
	demand := make([]float64, len(p.groups[0].Requests))
	for _, g := range p.groups {
		for r, x := range g.Requests {
			demand[r] += x * float64(g.Count)
		}
	}
	cost := make([]float64, len(demand)+len(p.bins))
	a, b := mat.NewDense(len(p.bins), len(cost), nil), make([]float64, len(p.bins))
	basis := make([]int, len(p.bins))
	for r := range demand {
		cost[r] = -1
	}
	for i, bin := range p.bins {
		b[i], basis[i] = 1, len(demand)+i
		a.Set(i, len(demand)+i, 1)
		for r, d := range demand {
			a.Set(i, r, bin.capacity[r]/d/bin.cost)
		}
	}
	_, solution, err := lp.Simplex(cost, a, b, tolerance, basis)
	if err != nil {
		return prices, 0
	}
	for _, bin := range p.bins {
		worth := 0.0
		for r, d := range demand {
			worth += bin.capacity[r] / d * max(0, solution[r])
		}
		most = max(most, worth/bin.cost)
	}
	for g, group := range p.groups {
		for r, x := range group.Requests {
			prices[g] += x / demand[r] * max(0, solution[r])
		}
	}
	return prices, most
}
