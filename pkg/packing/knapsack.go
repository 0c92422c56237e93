package packing

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// load is pods on one machine.
type load struct {
	bin    int
	counts []int // by group
}

// item is a group in a knapsack.
type item struct {
	group    int
	count    int
	value    float64
	requests []float64 // as shares of the machine
}

// knapsack looks for the load of one machine that is worth most: the bounded multidimensional knapsack problem, by
// branch and bound. Its bound is the linear program in which pods may be divided, and its loads are that program's,
// rounded down and filled up (Kellerer, Pferschy and Pisinger, Knapsack Problems, 2004, chapter 9).
type knapsack struct {
	items  []item
	size   int // resources
	order  []int
	open   branches
	best   []int
	value  float64 // of best
	proven float64 // the most that branches are worth that were given up, because they are not worth more than best
}

// branch is a part of the loads: those with a number of pods of each item between two bounds.
type branch struct {
	least, most []int
	bound       float64 // no load of it is worth more
	split       int     // item that the program divides; -1: none
	at          float64 // how many of it
}

// branches are a heap, the one with the highest bound first.
type branches []*branch

func (b branches) Len() int           { return len(b) }
func (b branches) Less(i, j int) bool { return b[i].bound > b[j].bound }
func (b branches) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *branches) Push(x any)        { *b = append(*b, x.(*branch)) } //nolint:forcetypeassert // the only type
func (b *branches) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// newKnapsack takes the groups that have a value. counts is how many pods there are of each.
func newKnapsack(p *problem, b bin, values []float64, counts []int) *knapsack {
	k := &knapsack{size: len(b.capacity)}
	for g, v := range values {
		if v <= 0 || counts[g] == 0 || !b.takes[g] {
			continue
		}
		requests := p.groups[g].Requests
		n := fits(requests, counts[g], b.capacity)
		if n == 0 {
			continue
		}
		shares := make([]float64, len(requests))
		for r, x := range requests {
			if x > 0 {
				shares[r] = x / b.capacity[r]
			}
		}
		k.items = append(k.items, item{group: g, count: n, value: v, requests: shares})
	}
	if len(k.items) == 0 {
		return k
	}
	k.best = make([]int, len(k.items))
	least, most := make([]int, len(k.items)), make([]int, len(k.items))
	for i, it := range k.items {
		most[i] = it.count
	}
	k.add(least, most)
	return k
}

// limit is what no load is worth more than.
func (k *knapsack) limit() float64 {
	if len(k.open) == 0 {
		return max(k.value, k.proven)
	}
	return max(k.value, k.proven, k.open[0].bound)
}

// search looks into so many branches, those with the highest bound first. It ends early once the best load is found.
func (k *knapsack) search(steps int) {
	for range steps {
		if len(k.open) == 0 {
			return
		}
		b := heap.Pop(&k.open).(*branch) //nolint:forcetypeassert // the only type
		if b.bound <= k.value*(1+tolerance) || b.split < 0 {
			k.proven = max(k.proven, b.bound)
			continue
		}
		below, above := slices.Clone(b.most), slices.Clone(b.least)
		below[b.split], above[b.split] = int(math.Floor(b.at)), int(math.Floor(b.at))+1
		k.add(b.least, below)
		k.add(above, b.most)
	}
}

// add bounds a branch, and takes the load that its program rounds down to.
func (k *knapsack) add(least, most []int) {
	left := k.whole()
	value := 0.0
	rest := make([]item, len(k.items))
	for i, it := range k.items {
		value += float64(least[i]) * it.value
		take(left, it.requests, least[i])
		rest[i] = it
		rest[i].count = most[i] - least[i]
	}
	for r := range left {
		if left[r] < -slack {
			return // even the least does not fit
		}
		left[r] = max(0, left[r])
	}
	d := newDivisible(rest, left)
	prices := d.solve()
	b := &branch{least: least, most: most, bound: value + d.bound(prices, left), split: -1}
	if k.order == nil {
		k.order = byValueForPrice(k.items, prices)
	}
	counts := slices.Clone(least)
	for i, x := range d.loaded() {
		whole := math.Floor(x + 1e-6)
		if x-whole > 1e-6 && (b.split < 0 || k.items[i].value > k.items[b.split].value) {
			b.split, b.at = i, float64(least[i])+x
		}
		counts[i] += int(whole)
	}
	k.fill(counts)
	heap.Push(&k.open, b)
}

// fill adds pods as long as any fits, those that are worth most for their price first, and keeps the load if it is the best.
func (k *knapsack) fill(counts []int) {
	left := k.whole()
	for i, it := range k.items {
		counts[i] = min(counts[i], fits(it.requests, it.count, left)) // rounding may have made too much of it
		take(left, it.requests, counts[i])
	}
	value := 0.0
	for _, i := range k.order {
		it := k.items[i]
		more := fits(it.requests, it.count-counts[i], left)
		take(left, it.requests, more)
		counts[i] += more
		value += float64(counts[i]) * it.value
	}
	if value > k.value {
		k.value = value
		copy(k.best, counts)
	}
}

// whole is an empty machine.
func (k *knapsack) whole() []float64 {
	left := make([]float64, k.size)
	for r := range left {
		left[r] = 1
	}
	return left
}

func take(left, requests []float64, count int) {
	for r, x := range requests {
		left[r] -= float64(count) * x
	}
}

// byValueForPrice are the items by what they are worth for the price of what they request.
func byValueForPrice(items []item, prices []float64) []int {
	order, each := make([]int, len(items)), make([]float64, len(items))
	for i, it := range items {
		order[i] = i
		for r, x := range it.requests {
			each[i] += x * prices[r]
		}
		each[i] = it.value / max(each[i], math.SmallestNonzeroFloat64)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(each[b], each[a]), cmp.Compare(a, b)) })
	return order
}
