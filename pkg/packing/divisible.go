package packing

import (
	"math"
	"slices"
)

// divisible is the knapsack in which pods may be divided: a linear program with one row for each resource, solved by
// the simplex method for variables with upper bounds (Dantzig, Linear Programming and Extensions, 1963, chapter 18).
// Its basis has as many columns as there are resources.
type divisible struct {
	items   []item
	full    []bool      // by item outside of the basis: all of its pods are loaded, and not none
	basic   []bool      // by item
	basis   []int       // by row: an item, or of resource r what is left, as -1-r
	inverse [][]float64 // of the basis
	amounts []float64   // by row
}

// newDivisible starts with an empty machine. left is what it has of each resource.
func newDivisible(items []item, left []float64) *divisible {
	resources := len(left)
	d := &divisible{
		items: items, full: make([]bool, len(items)), basic: make([]bool, len(items)),
		basis: make([]int, resources), inverse: make([][]float64, resources), amounts: make([]float64, resources),
	}
	for r := range resources {
		d.basis[r], d.inverse[r], d.amounts[r] = -1-r, make([]float64, resources), left[r]
		d.inverse[r][r] = 1
	}
	return d
}

// solve returns the price of the whole machine by resource, each at least 0.
func (d *divisible) solve() []float64 {
	prices := d.prices()
	for range 4*len(d.items) + 16 { // most items change once
		enters, gain := d.entering(prices)
		if gain <= tolerance {
			break
		}
		d.enter(enters)
		prices = d.prices()
	}
	for r := range prices {
		prices[r] = max(0, prices[r])
	}
	return prices
}

// bound is what no load is worth more than: under any prices what is left of the machine costs, and what pods are worth
// beyond their price.
func (d *divisible) bound(prices, left []float64) float64 {
	bound := 0.0
	for r, p := range prices {
		bound += p * left[r]
	}
	for _, it := range d.items {
		surplus := it.value
		for r, x := range it.requests {
			surplus -= x * prices[r]
		}
		bound += float64(it.count) * max(0, surplus)
	}
	return bound
}

// loaded is how many pods of each item the program takes.
func (d *divisible) loaded() []float64 {
	out := make([]float64, len(d.items))
	for i, it := range d.items {
		if d.full[i] {
			out[i] = float64(it.count)
		}
	}
	for i, b := range d.basis {
		if b >= 0 {
			out[b] = min(float64(d.items[b].count), max(0, d.amounts[i]))
		}
	}
	return out
}

func (d *divisible) prices() []float64 {
	prices := make([]float64, len(d.basis))
	for i, b := range d.basis {
		if b < 0 {
			continue
		}
		for r, x := range d.inverse[i] {
			prices[r] += d.items[b].value * x
		}
	}
	return prices
}

// entering is the variable outside of the basis whose change to its other bound would gain most.
func (d *divisible) entering(prices []float64) (variable int, gain float64) {
	for r, p := range prices {
		if -p > gain && !slices.Contains(d.basis, -1-r) {
			variable, gain = -1-r, -p
		}
	}
	for i, it := range d.items {
		if d.basic[i] {
			continue
		}
		reduced := it.value
		for r, x := range it.requests {
			reduced -= x * prices[r]
		}
		if d.full[i] {
			reduced = -reduced
		}
		if g := reduced * float64(it.count); reduced > tolerance*it.value && g > gain {
			variable, gain = i, g
		}
	}
	return variable, gain
}

// enter moves a variable from its bound until it reaches the other one, or one of the basis reaches a bound, which leaves.
func (d *divisible) enter(variable int) {
	direction, sign, most := d.direction(variable), 1.0, math.Inf(1)
	if variable >= 0 {
		most = float64(d.items[variable].count)
		if d.full[variable] {
			sign = -1
		}
	}
	leaves, atUpper, by := d.leaving(direction, sign, most)
	for i, x := range direction {
		d.amounts[i] -= sign * by * x
	}
	if leaves < 0 {
		d.full[variable] = !d.full[variable]
		return
	}
	if b := d.basis[leaves]; b >= 0 {
		d.basic[b], d.full[b] = false, atUpper
	}
	d.basis[leaves], d.amounts[leaves] = variable, by
	if variable >= 0 {
		d.basic[variable] = true
		if sign < 0 {
			d.amounts[leaves] = most - by
		}
	}
	pivotOn(d.inverse, direction, leaves)
}

// direction is by how much each variable of the basis falls while this one rises by 1.
func (d *divisible) direction(variable int) []float64 {
	direction := make([]float64, len(d.basis))
	for i, row := range d.inverse {
		if variable < 0 {
			direction[i] = row[-1-variable]
			continue
		}
		for r, x := range d.items[variable].requests {
			direction[i] += row[r] * x
		}
	}
	return direction
}

// leaving is the row that reaches a bound first, and by how much the variable that enters has moved then; row -1: none
// before it has moved by most.
func (d *divisible) leaving(direction []float64, sign, most float64) (row int, atUpper bool, by float64) {
	row, by = -1, most
	for i, x := range direction {
		falls := sign * x
		switch limit := d.limit(i); {
		case falls > smallestPivot && max(0, d.amounts[i])/falls < by:
			row, atUpper, by = i, false, max(0, d.amounts[i])/falls
		case falls < -smallestPivot && max(0, limit-d.amounts[i])/-falls < by:
			row, atUpper, by = i, true, max(0, limit-d.amounts[i])/-falls
		}
	}
	return row, atUpper, by
}

// limit of the variable in a row of the basis.
func (d *divisible) limit(row int) float64 {
	if b := d.basis[row]; b >= 0 {
		return float64(d.items[b].count)
	}
	return math.Inf(1)
}

// pivotOn brings the inverse of a basis in line with a column that takes the place of another one. direction is the
// inverse times the new column.
func pivotOn(inverse [][]float64, direction []float64, leaves int) {
	pivot := inverse[leaves]
	for j := range pivot {
		pivot[j] /= direction[leaves]
	}
	for i, row := range inverse {
		if i == leaves || direction[i] == 0 {
			continue
		}
		for j := range row {
			row[j] -= direction[i] * pivot[j]
		}
	}
}
