// Package repack searches which nodes of a cluster to close so that other nodes, and cheaper machines opened for the
// purpose, carry their pods. What a set of nodes saves is for its caller to simulate; the search decides which sets are
// worth a simulation, since their number is exponential.
//
// A pod is worth its dominant share of the machine on which that share costs least (DominantCost). The nodes that cost
// most above what their pods are worth, for each pod that would move, come first (Order). Search tries the first of them
// in growing numbers, and then drops each node from the best set that does not pay for its own moves.
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

// MaxEvaluations bounds how many sets of nodes one search simulates.
const MaxEvaluations = 64

// Evaluate returns the net saving of closing a set of nodes in USD, what its moves have to save taken off;
// 0 or less where the set is not worth it or cannot be closed. The set is ascending, and must not be kept.
type Evaluate func(ctx context.Context, set []int) (float64, error)

// Search returns the set with the highest net saving that it finds among nodes 0 to n-1, ascending, and that saving; an
// empty set where it finds none. The nodes come in the order of Order. It returns what it has found when the context
// ends. An error of evaluate ends it as well.
func Search(ctx context.Context, n int, evaluate Evaluate) ([]int, float64, error) {
	s := search{evaluate: evaluate}
	for size := 1; size <= n; size = grow(size, n) {
		if err := s.try(ctx, sequence(size)); err != nil {
			return nil, 0, err
		}
	}
	// From the last: it was added for the least. A node before it keeps its place when it goes.
	for at := len(s.set) - 1; at >= 0 && len(s.set) > 1; at-- {
		if err := s.try(ctx, slices.Delete(slices.Clone(s.set), at, at+1)); err != nil {
			return nil, 0, err
		}
	}
	return s.set, s.saving, nil
}

// grow returns the next size to try: half as many again, and all in the end.
func grow(size, n int) int {
	if size == n {
		return n + 1
	}
	return min(max(size+1, size*3/2), n)
}

func sequence(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// search is the best set so far.
type search struct {
	evaluate    Evaluate
	evaluations int
	set         []int
	saving      float64
}

// try takes the set if it saves more than the best so far, or as much with fewer nodes.
func (s *search) try(ctx context.Context, set []int) error {
	if ctx.Err() != nil || s.evaluations >= MaxEvaluations {
		return nil
	}
	s.evaluations++
	saving, err := s.evaluate(ctx, set)
	if err != nil {
		return err
	}
	if saving > s.saving || saving > 0 && saving == s.saving && len(set) < len(s.set) {
		s.set, s.saving = set, saving
	}
	return nil
}
