// Package repack searches which nodes of a cluster to close so that other nodes, and cheaper machines opened for the
// purpose, carry their pods. What a set of nodes saves is for its caller to simulate; the search decides which sets are
// worth a simulation, since their number is exponential.
//
// A pod is worth its dominant share of the machine on which that share costs least (DominantCost). The nodes that cost
// most above what their pods are worth, for each pod that would move, come first (Order). Search tries the first of them
// in growing numbers, adds others that save more, and drops each node that does not pay for its own moves.
//
// It imports nothing of Kubernetes but the types of resources.
package repack

import (
	"cmp"
	"context"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Machine is a machine that can be opened: its allocatable resources, and its price in USD per hour.
type Machine struct {
	Allocatable corev1.ResourceList
	Price       float64
}

// DominantCost is the least price, in USD per hour, of a pod's dominant share of a machine: the largest of its shares of
// the machine's resources (Ghodsi et al., Dominant Resource Fairness, NSDI 2011). It orders nodes and is no bound: pods
// with different dominant resources share a machine for less. A pod that no machine holds costs 0.
func DominantCost(requests corev1.ResourceList, machines []Machine) float64 {
	least := math.Inf(1)
	for _, m := range machines {
		share := 0.0
		for name, quantity := range requests {
			amount := quantity.AsApproximateFloat64()
			if amount <= 0 {
				continue
			}
			have := m.Allocatable[name]
			share = max(share, amount/have.AsApproximateFloat64()) // without the resource: infinite
		}
		if share <= 1 {
			least = min(least, share*m.Price)
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// Node is one that may be closed.
type Node struct {
	// Price of the node, and the sum of DominantCost over its pods, in USD per hour.
	Price, DominantCost float64
	// Moves is how many pods would have to leave it.
	Moves int
}

// Order returns the indexes of nodes, those first that cost most above what their pods are worth, for each move.
func Order(nodes []Node) []int {
	excess := func(i int) float64 { return (nodes[i].Price - nodes[i].DominantCost) / float64(1+nodes[i].Moves) }
	order := make([]int, len(nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(excess(b), excess(a)) })
	return order
}

// MaxEvaluations bounds how many sets of nodes one search simulates. Growing a set leaves some for dropping nodes from it.
const (
	MaxEvaluations = 64
	maxGrowing     = 48
)

// Evaluation is what closing a set of nodes comes to.
type Evaluation struct {
	// Saving in USD, what the moves have to save taken off. 0 or less where the set is not worth its moves.
	Saving float64
	// Stuck are nodes of the set whose pods find no place when the set is closed.
	Stuck []int
}

// Search looks for the set of nodes with the highest saving.
type Search struct {
	// Nodes is their number. They come in the order of Order.
	Nodes int
	// Allowed reports whether the nodes of a set may be closed together; budgets say so.
	Allowed func(set []int) bool
	// Evaluate prices a set. The set is ascending, and must not be kept.
	Evaluate func(ctx context.Context, set []int) (Evaluation, error)

	evaluations int
	set         []int
	saving      float64
	stuck       []bool // nodes that cannot be closed even alone
}

// Run returns the best set that it finds, ascending, and what it saves; an empty set where none is worth its moves. When
// the context ends it returns what it has found by then.
func (s *Search) Run(ctx context.Context) ([]int, float64, error) {
	s.evaluations, s.set, s.saving, s.stuck = 0, nil, 0, make([]bool, s.Nodes)
	for _, phase := range []func(context.Context) error{s.tryFirst, s.grow, s.drop} {
		if err := phase(ctx); err != nil && ctx.Err() == nil {
			return nil, 0, err
		}
	}
	return s.set, s.saving, nil
}

// tryFirst tries the first nodes, in growing numbers: two nodes may be worth closing together of which none is alone. A set
// in which pods find no place is tried again without their nodes.
func (s *Search) tryFirst(ctx context.Context) error {
	skip := slices.Clone(s.stuck)
	last := 0
	for size := 1; s.mayTry(ctx, maxGrowing); {
		set := s.first(size, skip)
		if len(set) <= last {
			return nil // there are no more
		}
		stuck, err := s.try(ctx, set)
		if err != nil {
			return err
		}
		if len(stuck) == 0 {
			last, size = len(set), max(size+1, size*3/2)
			continue
		}
		for _, i := range stuck {
			skip[i] = true
		}
	}
	return nil
}

// first is the first nodes that are not skipped and may be closed together, so many at most.
func (s *Search) first(size int, skip []bool) (set []int) {
	for i := 0; i < s.Nodes && len(set) < size; i++ {
		if !skip[i] && s.Allowed(append(slices.Clip(set), i)) {
			set = append(set, i)
		}
	}
	return set
}

// grow adds other nodes to the best set where that saves more: many at once while that works, one by one where it does not.
func (s *Search) grow(ctx context.Context) error {
	var rest []int
	for i := range s.Nodes {
		if !s.stuck[i] && !slices.Contains(s.set, i) {
			rest = append(rest, i)
		}
	}
	for chunk := 1; len(rest) > 0 && s.mayTry(ctx, maxGrowing); {
		chunk = min(chunk, len(rest))
		set := s.with(rest[:chunk])
		if len(set) == len(s.set) {
			rest, chunk = rest[chunk:], 1 // none may be closed beside those that are
			continue
		}
		before := s.saving
		if _, err := s.try(ctx, set); err != nil {
			return err
		}
		switch {
		case s.saving > before:
			rest, chunk = rest[chunk:], 2*chunk
		case chunk > 1:
			chunk /= 2
		default:
			rest = rest[1:]
		}
	}
	return nil
}

// with is the best set and as many of other nodes as may be closed beside it.
func (s *Search) with(others []int) []int {
	set := slices.Clone(s.set)
	for _, i := range others {
		if s.Allowed(append(slices.Clip(set), i)) {
			set = append(set, i)
		}
	}
	slices.Sort(set)
	return set
}

// drop leaves out each node without which the best set saves more, or as much: the last first, as it is worth the least.
func (s *Search) drop(ctx context.Context) error {
	for at := len(s.set) - 1; at >= 0 && len(s.set) > 1 && s.mayTry(ctx, MaxEvaluations); at-- {
		if _, err := s.try(ctx, slices.Delete(slices.Clone(s.set), at, at+1)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Search) mayTry(ctx context.Context, most int) bool {
	return ctx.Err() == nil && s.evaluations < most
}

// try takes the set if it saves more than the best so far, or as much with fewer nodes. It returns the nodes that are stuck.
func (s *Search) try(ctx context.Context, set []int) ([]int, error) {
	s.evaluations++
	e, err := s.Evaluate(ctx, set)
	if err != nil {
		return nil, err
	}
	if len(set) == 1 && len(e.Stuck) > 0 {
		s.stuck[set[0]] = true
	}
	if e.Saving > s.saving || e.Saving > 0 && e.Saving == s.saving && len(set) < len(s.set) {
		s.set, s.saving = set, e.Saving
	}
	return e.Stuck, nil
}
