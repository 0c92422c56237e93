package history

import (
	"slices"

	"k8s.io/apimachinery/pkg/watch"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// MostDisrupting returns the largest number of pool's nodes that were on their way out at once, and
// the state in which that was first so. An empty pool means all.
func (h History) MostDisrupting(pool string) (int, State) {
	most, when := 0, State{}
	h.Walk(func(s State) {
		if n := len(s.Disrupting(pool)); n > most {
			most, when = n, s.clone()
		}
	})
	return most, when
}

// FewestInitialized returns the smallest number of pool's nodes that could run pods in any state of
// the history, and the state in which that was first so.
func (h History) FewestInitialized(pool string) (int, State) {
	fewest, when := -1, State{}
	h.Walk(func(s State) {
		if n := len(s.Initialized(pool)); fewest < 0 || n < fewest {
			fewest, when = n, s.clone()
		}
	})
	return max(fewest, 0), when
}

// Created returns the names of the NodeClaims that were created, in order.
func (h History) Created() []string {
	var names []string
	for _, v := range h.Versions() {
		if claim, ok := v.Object.(*karpenterv1.NodeClaim); ok && v.Type == watch.Added {
			names = append(names, claim.Name)
		}
	}
	return names
}

// Disrupted returns the names of the NodeClaims that were chosen for disruption or deleted, in order.
func (h History) Disrupted() []string {
	var names []string
	h.Walk(func(s State) {
		for _, name := range s.Disrupting("") {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	})
	return names
}

// DisruptionReason returns the reason under which a NodeClaim was disrupted, as in its condition
// DisruptionReason, or "" when it never was.
func (h History) DisruptionReason(claim string) string {
	reason := ""
	for _, v := range h.Versions() {
		c, ok := v.Object.(*karpenterv1.NodeClaim)
		if !ok || c.Name != claim {
			continue
		}
		if condition := c.StatusConditions().Get(karpenterv1.ConditionTypeDisruptionReason); condition.IsTrue() {
			reason = condition.Reason
		}
	}
	return reason
}

// StateAtDeletion returns the cluster at the moment in which the NodeClaim was asked to go: the
// first state in which it has a deletion timestamp.
func (h History) StateAtDeletion(claim string) (State, bool) {
	return h.First(func(s State) bool {
		c, ok := s.NodeClaims[claim]
		return ok && !c.DeletionTimestamp.IsZero()
	})
}
