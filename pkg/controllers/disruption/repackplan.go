package disruption

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	pscheduling "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/pricecap"
)

const (
	// repackSizes is under how many caps on the price of a machine a set of nodes is simulated.
	repackSizes = 5
	// repackStep is each cap as a share of the largest price under the one before. The sizes of machines are mostly powers of
	// two, and their prices with them, so that each cap leaves out one size.
	repackStep = 0.75
)

// repackPlan is a set of nodes to close, and what is opened for them.
type repackPlan struct {
	command disruption.Command
	// most is the cap on the price of a machine under which it was simulated, in USD per hour; infinite for none. pools are
	// the NodePools of which machines may be opened; nil: all.
	most  float64
	pools map[string]bool
	// worth is what it saves within the horizon, in USD. net is that without what the moves have to save.
	worth, net float64
}

// plan returns the best plan for a set of nodes under several caps, nil where no plan is worth its moves, and the nodes
// whose pods find no place. It returns what it has when the context ends.
func (r *repacking) plan(ctx context.Context, nodes []repackNode) (best *repackPlan, stuck map[string]bool, err error) {
	open := repackPlan{most: math.Inf(1)}
	for range repackSizes {
		results, without, err := r.simulate(ctx, nodes, open.most)
		if err != nil || results == nil {
			if ctx.Err() != nil {
				err = nil
			}
			if math.IsInf(open.most, 1) {
				stuck = without
			}
			return best, stuck, err
		}
		if p := r.judge(ctx, nodes, *results, open); p != nil && (best == nil || p.net > best.net) {
			best = p
		}
		largest := 0.0
		for _, n := range results.NewNodeClaims {
			largest = max(largest, launchPrice(n))
		}
		if largest == 0 || largest > open.most || math.IsInf(largest, 1) {
			break // no machine is opened, or the cap changes nothing
		}
		if open.pools == nil {
			open.pools = poolsOf(*results)
		}
		open.most = largest * repackStep
	}
	return best, nil, nil
}

// poolsOf are the NodePools of the machines that are opened. Under a cap no machine of another one may be: the weights of
// NodePools come before prices.
func poolsOf(results pscheduling.Results) map[string]bool {
	return lo.SliceToMap(results.NewNodeClaims, func(n *pscheduling.NodeClaim) (string, bool) { return n.NodePoolName, true })
}

// planUnder returns the plan for a set of nodes as another was made; nil where it is not worth its moves.
func (r *repacking) planUnder(ctx context.Context, nodes []repackNode, as repackPlan) (*repackPlan, error) {
	results, _, err := r.simulate(ctx, nodes, as.most)
	if err != nil || results == nil {
		return nil, err
	}
	return r.judge(ctx, nodes, *results, as), nil
}

// simulate returns where the nodes' pods would go; nil where one would go nowhere, and which nodes such pods are on, or
// where machines would be opened for others as well: what waits for a machine gets one from provisioning.
func (r *repacking) simulate(ctx context.Context, nodes []repackNode, most float64) (*pscheduling.Results, map[string]bool, error) {
	candidates := lo.Map(nodes, func(n repackNode, _ int) *disruption.Candidate { return n.Candidate })
	results, err := disruption.SimulateScheduling(pricecap.WithCap(ctx, most), r.Client, r.Cluster, r.Provisioner, r.Clock, r.Recorder,
		[]pscheduling.Options{pscheduling.IsConsolidationSimulation}, disruption.SimulationOptions{}, candidates...)
	switch {
	case err != nil && r.anyDeleting(candidates):
		return nil, nil, nil // another process is closing one
	case err != nil:
		return nil, nil, fmt.Errorf("simulating that %d nodes are closed: %w", len(nodes), err)
	case !results.AllNonPendingPodsScheduled():
		at, stuck := nodesOfPods(nodes), map[string]bool{}
		for p := range results.PodErrors {
			if name, ok := at[p.UID]; ok {
				stuck[name] = true
			}
		}
		return nil, stuck, nil
	}
	known := nodesOfPods(nodes)
	for _, n := range results.NewNodeClaims {
		if slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return known[p.UID] == "" }) {
			return nil, nil, nil
		}
	}
	return &results, nil, nil
}

func nodesOfPods(nodes []repackNode) map[types.UID]string {
	out := map[types.UID]string{}
	for _, n := range nodes {
		for _, p := range n.pods {
			out[p.UID] = n.Name()
		}
	}
	return out
}

func (r *repacking) anyDeleting(candidates []*disruption.Candidate) bool {
	return slices.ContainsFunc(candidates, func(c *disruption.Candidate) bool {
		n := nodeNamed(r.Cluster, c.Name())
		return n == nil || n.MarkedForDeletion()
	})
}

// judge returns the plan that a simulation amounts to; nil where it is not worth its moves, also if every machine turns out
// to be the most expensive that the plan leaves to the provider. A node costs until its last pod has ended, and so does a
// machine.
func (r *repacking) judge(ctx context.Context, nodes []repackNode, results pscheduling.Results, as repackPlan) *repackPlan {
	if as.pools != nil && !lo.Every(lo.Keys(as.pools), lo.Keys(poolsOf(results))) || !settleCapacityTypes(ctx, nodes, results) {
		return nil
	}
	paid := lo.SumBy(nodes, func(n repackNode) float64 { return n.Price * n.hours })
	due := lo.SumBy(nodes, func(n repackNode) float64 { return n.due })
	opened := 0.0
	for _, n := range results.NewNodeClaims {
		opened += launchPrice(n) * lastsFor(n.Pods, r.Clock.Now())
	}
	p := &repackPlan{most: as.most, pools: as.pools, worth: paid - opened, net: paid - opened - due}
	if !(p.net > 0) || !capPrices(results, (paid-due)/opened) { // what is no number saves nothing
		return nil
	}
	p.command = disruption.Command{
		Candidates: lo.Map(nodes, func(n repackNode, _ int) *disruption.Candidate { return n.Candidate }),
		Replacements: lo.Map(results.NewNodeClaims, func(n *pscheduling.NodeClaim, _ int) *disruption.Replacement {
			return &disruption.Replacement{NodeClaim: n}
		}),
		Results: results,
	}
	if approved, _ := disruption.EvaluateBalancedMove(ctx, p.command, r.totals); !approved {
		return nil
	}
	return p
}

// settleCapacityTypes leaves each machine the capacity types that its price is known for. It reports false where that leaves
// a machine without an instance type.
//   - reserved: the scheduler pins a machine to the reservations that it has set aside for it. Any other gets none.
//   - spot: a machine that may be spot must be, or fail to launch. Of nodes that are all spot none is replaced by spot
//     unless Karpenter's feature gate allows it: the cheapest spot machines are those that are interrupted soonest.
func settleCapacityTypes(ctx context.Context, nodes []repackNode, results pscheduling.Results) bool {
	allSpot := lo.EveryBy(nodes, func(n repackNode) bool { return n.Labels()[karpv1.CapacityTypeLabelKey] == karpv1.CapacityTypeSpot })
	spotStays := !allSpot || options.FromContext(ctx).FeatureGates.SpotToSpotConsolidation
	for _, n := range results.NewNodeClaims {
		capacity := n.Requirements.Get(karpv1.CapacityTypeLabelKey)
		if _, pinned := n.Requirements[karpcloud.ReservationIDLabel]; !pinned && capacity.Has(karpv1.CapacityTypeReserved) {
			n.Requirements.Add(scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpNotIn, karpv1.CapacityTypeReserved))
		}
		offered := slices.ContainsFunc(n.InstanceTypeOptions, func(it *karpcloud.InstanceType) bool {
			return it.Offerings.Launchable().Compatible(n.Requirements).HasCompatible(karpcloud.SpotRequirement)
		})
		if capacity.Has(karpv1.CapacityTypeSpot) && offered {
			operator := lo.Ternary(spotStays, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn)
			n.Requirements.Add(scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, operator, karpv1.CapacityTypeSpot))
		}
		if n.InstanceTypeOptions = n.InstanceTypeOptions.Compatible(n.Requirements); len(n.InstanceTypeOptions) == 0 {
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

// capPrices leaves to each machine the instance types below so many times its lowest price, which are more than one. It
// reports false where a NodePool asks for more of them.
func capPrices(results pscheduling.Results, times float64) bool {
	for _, n := range results.NewNodeClaims {
		capped, err := n.RemoveInstanceTypeOptionsByPriceAndMinValues(n.Requirements, launchPrice(n)*times)
		if err != nil || len(capped.InstanceTypeOptions) == 0 {
			return false
		}
		n.InstanceTypeOptions = n.InstanceTypeOptions.OrderByPrice(n.Requirements)
	}
	return true
}
