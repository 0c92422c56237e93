package disruption

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	pscheduling "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/pricecap"
)

// repackSizes is under how many caps on the price of a machine a set of nodes is simulated. Each halves the one before:
// the sizes of machines are mostly powers of two, and their prices with them.
const repackSizes = 4

// repackPlan is a set of nodes to close, and what is opened for them.
type repackPlan struct {
	command disruption.Command
	// most is the cap on the price of a machine under which it was simulated, in USD per hour; infinite for none.
	most float64
	// saving is what the nodes cost above the machines, in USD per hour. net is what that saves while the pods live, what their
	// moves have to save taken off, in USD.
	saving, net float64
	moves       int
}

// plan returns the best plan for a set of nodes under several caps; nil where no plan is worth its moves.
func (r *repacking) plan(ctx context.Context, nodes []repackNode) (*repackPlan, error) {
	var best *repackPlan
	most := math.Inf(1)
	for range repackSizes {
		results, err := r.simulate(ctx, nodes, most)
		if err != nil || results == nil {
			return best, err
		}
		largest := lo.Max(lo.Map(results.NewNodeClaims, func(n *pscheduling.NodeClaim, _ int) float64 { return launchPrice(n) }))
		best = cheaper(best, r.judge(ctx, nodes, *results, most))
		if largest == 0 || math.IsInf(largest, 1) {
			break // no machine is opened, or none can be
		}
		most = largest / 2
	}
	return best, nil
}

// planUnder returns the plan for a set of nodes under one cap; nil where it is not worth its moves.
func (r *repacking) planUnder(ctx context.Context, nodes []repackNode, most float64) (*repackPlan, error) {
	results, err := r.simulate(ctx, nodes, most)
	if err != nil || results == nil {
		return nil, err
	}
	return r.judge(ctx, nodes, *results, most), nil
}

// simulate returns where the nodes' pods would go; nil where one would go nowhere, or where machines would be opened for
// others as well: what waits for a machine gets one from provisioning.
func (r *repacking) simulate(ctx context.Context, nodes []repackNode, most float64) (*pscheduling.Results, error) {
	if !math.IsInf(most, 1) {
		ctx = pricecap.WithCap(ctx, most)
	}
	candidates := lo.Map(nodes, func(n repackNode, _ int) *disruption.Candidate { return n.Candidate })
	results, err := disruption.SimulateScheduling(ctx, r.Client, r.Cluster, r.Provisioner, r.Clock, r.Recorder,
		[]pscheduling.Options{pscheduling.IsConsolidationSimulation}, disruption.SimulationOptions{}, candidates...)
	switch {
	case err != nil && r.anyDeleting(candidates):
		return nil, nil // somebody else closes one since
	case err != nil:
		return nil, fmt.Errorf("simulating that %d nodes are closed: %w", len(nodes), err)
	case !results.AllNonPendingPodsScheduled():
		return nil, nil
	}
	known := podsOf(nodes)
	for _, n := range results.NewNodeClaims {
		if slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return known[p.UID] == nil }) {
			return nil, nil
		}
	}
	return &results, nil
}

func (r *repacking) anyDeleting(candidates []*disruption.Candidate) bool {
	return slices.ContainsFunc(candidates, func(c *disruption.Candidate) bool {
		n := nodeNamed(r.Cluster, c.Name())
		return n == nil || n.MarkedForDeletion()
	})
}

// judge returns the plan that a simulation amounts to; nil where it is not worth its moves, also if every machine turns out
// to be the most expensive that the plan leaves to the provider.
func (r *repacking) judge(ctx context.Context, nodes []repackNode, results pscheduling.Results, most float64) *repackPlan {
	pods := lo.Values(podsOf(nodes))
	hours, price := r.hours(pods), lo.SumBy(nodes, func(n repackNode) float64 { return n.Price })
	due := lo.SumBy(nodes, func(n repackNode) float64 { return n.due })
	if hours <= 0 || !restrictToSpot(ctx, nodes, results) {
		return nil
	}
	opened := lo.SumBy(results.NewNodeClaims, launchPrice)
	saving := price - opened
	p := &repackPlan{most: most, saving: saving, net: saving*hours - due, moves: len(pods)}
	if !(p.net > 0) || !capPrices(results, (price-due/hours)/opened) { // a price that is no number is no saving
		return nil
	}
	p.command = disruption.Command{
		Candidates: lo.Map(nodes, func(n repackNode, _ int) *disruption.Candidate { return n.Candidate }),
		Replacements: lo.Map(results.NewNodeClaims, func(n *pscheduling.NodeClaim, _ int) *disruption.Replacement {
			return &disruption.Replacement{NodeClaim: n}
		}),
		Results: results,
	}
	if approved, _ := disruption.NewBalancedEvaluator(r.totals, r.Recorder).ApproveCommand(ctx, p.command); !approved {
		return nil
	}
	return p
}

// restrictToSpot has a machine that may be spot or on demand be spot, or fail to launch: the price that the plan is made
// with is that of spot. Of nodes that are all spot none is replaced by spot unless Karpenter's feature gate allows it: the
// cheapest spot machines are those that are interrupted soonest. It reports false where that leaves a machine without an
// instance type.
func restrictToSpot(ctx context.Context, nodes []repackNode, results pscheduling.Results) bool {
	allSpot := lo.EveryBy(nodes, func(n repackNode) bool { return n.Labels()[karpv1.CapacityTypeLabelKey] == karpv1.CapacityTypeSpot })
	kept := !allSpot || options.FromContext(ctx).FeatureGates.SpotToSpotConsolidation
	for _, n := range results.NewNodeClaims {
		capacity := n.Requirements.Get(karpv1.CapacityTypeLabelKey)
		offered := slices.ContainsFunc(n.InstanceTypeOptions, func(it *karpcloud.InstanceType) bool {
			return it.Offerings.Launchable().Compatible(n.Requirements).HasCompatible(karpcloud.SpotRequirement)
		})
		switch {
		case !capacity.Has(karpv1.CapacityTypeSpot) || !offered:
			continue
		case kept:
			n.Requirements.Add(scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeSpot))
		default:
			n.Requirements.Add(scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpNotIn, karpv1.CapacityTypeSpot))
		}
		n.InstanceTypeOptions = n.InstanceTypeOptions.Compatible(n.Requirements)
		if len(n.InstanceTypeOptions) == 0 {
			return false
		}
	}
	return true
}

// launchPrice is the lowest price at which the machine can be launched, in USD per hour; infinite for none.
func launchPrice(n *pscheduling.NodeClaim) float64 {
	least := math.Inf(1)
	for _, it := range n.InstanceTypeOptions {
		if price := it.Offerings.Launchable().WorstLaunchPrice(n.Requirements); price < math.MaxFloat64 {
			least = min(least, price)
		}
	}
	return least
}

// capPrices leaves to each machine the instance types up to so many times its lowest price. It reports false where a
// NodePool asks for more of them.
func capPrices(results pscheduling.Results, times float64) bool {
	for _, n := range results.NewNodeClaims {
		most := math.Nextafter(launchPrice(n)*min(max(times, 1), math.MaxFloat64), math.Inf(1)) // those below it stay, and the cheapest is one
		capped, err := n.RemoveInstanceTypeOptionsByPriceAndMinValues(n.Requirements, most)
		if err != nil || len(capped.InstanceTypeOptions) == 0 {
			return false
		}
		n.InstanceTypeOptions = n.InstanceTypeOptions.OrderByPrice(n.Requirements)
	}
	return true
}
