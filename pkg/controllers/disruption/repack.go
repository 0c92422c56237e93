package disruption

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
	"github.com/mainspring-rt/mainspring/pkg/podselection"
	"github.com/mainspring-rt/mainspring/pkg/repack"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// repackType is the label consolidation_type of Karpenter's metrics.
	repackType = "repack"
	// repackTimeout bounds one search; Karpenter's multi-node consolidation has as long.
	repackTimeout = time.Minute
	// repackMost bounds how many nodes one command closes, as Karpenter's multi-node consolidation does.
	repackMost = 100
	// repackDelay is how long a command has to hold before it begins, as Karpenter's consolidation has it.
	repackDelay = 15 * time.Second
	// repackHorizon is how far ahead a saving counts: what runs longer is repacked again by then.
	repackHorizon = 24 * time.Hour
)

// RepackOptions are the settings of repacking.
type RepackOptions struct {
	Enabled bool
	// MinSavingsPerMove is what each pod that moves has to save within the next day, or in the rest of its life where
	// that is shorter, in USD. Nodes whose pods do not save that stay.
	MinSavingsPerMove float64
}

// repacking closes N nodes for M cheaper ones, where Karpenter's consolidation closes N for none or one. It prices sets of
// nodes by Karpenter's own simulation (repack.Search). No container of criticality High moves for a lower price.
type repacking struct {
	disruption.Method // single-node consolidation: which nodes are candidates, and for which reason they go
	Dependencies
	totals map[string]disruption.NodePoolTotals
	// unchanged is the instant of the cluster's last change before a search that found nothing, and searched the nodes of that
	// search: the budgets may allow others later.
	unchanged time.Time
	searched  []string
}

func newRepacking(d Dependencies) *repacking {
	consolidation := disruption.MakeConsolidation(d.Clock, d.Cluster, d.Client, d.Provisioner, d.CloudProvider, d.Recorder, d.Queue)
	return &repacking{Method: disruption.NewSingleNodeConsolidation(consolidation), Dependencies: d}
}

// ConsolidationType implements disruption.Method.
func (r *repacking) ConsolidationType() string { return repackType }

// SetNodePoolTotals implements disruption.NodePoolTotalsSetter.
func (r *repacking) SetNodePoolTotals(totals map[string]disruption.NodePoolTotals) { r.totals = totals }

// ShouldDisrupt implements disruption.Method.
func (r *repacking) ShouldDisrupt(ctx context.Context, c *disruption.Candidate) bool {
	return c.Price > 0 && r.Method.ShouldDisrupt(ctx, c) && !hasHigh(r.Store.Snapshot(), c.Name())
}

// hasHigh reports whether a container of criticality High runs on a node.
func hasHigh(s *state.Snapshot, node string) bool {
	n, ok := s.NodeView(node)
	return ok && slices.ContainsFunc(n.Servers, func(v state.ServerView) bool { return v.McKube != nil && v.Criticality == rt.High })
}

// ComputeCommands implements disruption.Method.
func (r *repacking) ComputeCommands(ctx context.Context, budgets map[string]int, candidates ...*disruption.Candidate) ([]disruption.Command, error) {
	before := r.Cluster.ConsolidationState()
	nodes, err := r.nodes(ctx, budgets, candidates)
	if err != nil { // no reason to hold up the other methods
		log.FromContext(ctx).Error(err, "reading what could be repacked")
		return nil, nil
	}
	names := lo.Map(nodes, func(n repackNode, _ int) string { return n.Name() })
	if len(nodes) == 0 || r.unchanged.Equal(before) && slices.Equal(r.searched, names) {
		return nil, nil
	}
	plan, err := r.search(ctx, nodes)
	if ctx.Err() != nil {
		return nil, nil // what interrupts it searches again
	}
	if err != nil {
		return nil, err
	}
	if plan == nil {
		r.unchanged, r.searched = before, names
		metrics.RepackSearches.WithLabelValues(metrics.RepackNothing).Inc()
		return nil, nil
	}
	plan.command.EmitCandidateEvents(r.Recorder)
	return r.validate(ctx, *plan)
}

// repackNode is a candidate with its pods that would move, and what these have to save for that in USD.
type repackNode struct {
	*disruption.Candidate
	pods []*corev1.Pod
	due  float64
}

// nodes are the candidates that the budgets allow, those first that are worth least for what they cost.
func (r *repacking) nodes(ctx context.Context, budgets map[string]int, candidates []*disruption.Candidate) ([]repackNode, error) {
	all, worth := make([]repackNode, len(candidates)), make([]repack.Node, len(candidates))
	minSavings, err := r.minSavings(ctx)
	if err != nil {
		return nil, err
	}
	machines := map[string][]repack.Machine{}
	for i, c := range candidates {
		pods, err := c.CurrentlyReschedulablePods(ctx, r.Client, r.Clock, r.Recorder)
		if err != nil {
			return nil, fmt.Errorf("listing the pods of node %s: %w", c.Name(), err)
		}
		if machines[c.NodePool.Name] == nil {
			if machines[c.NodePool.Name], err = r.machines(ctx, c.NodePool); err != nil {
				return nil, err
			}
		}
		all[i] = repackNode{c, pods, lo.SumBy(pods, minSavings)}
		worth[i] = repack.Node{Price: c.Price, Moves: len(pods), DominantCost: lo.SumBy(pods, func(p *corev1.Pod) float64 {
			return repack.DominantCost(resources.RequestsForPods(p), machines[c.NodePool.Name])
		})}
	}
	var allowed []repackNode
	for _, i := range repack.Order(worth) {
		if pool := candidates[i].NodePool.Name; budgets[pool] > 0 && len(allowed) < repackMost {
			budgets[pool]--
			allowed = append(allowed, all[i])
		}
	}
	return allowed, nil
}

// minSavings returns what a pod has to save when it moves, in USD: what the flag says, or a CostPolicy of the pod where that
// is more.
func (r *repacking) minSavings(ctx context.Context) (func(*corev1.Pod) float64, error) {
	list := &kcloudv1alpha1.CostPolicyList{}
	if err := r.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing CostPolicies: %w", err)
	}
	type policy struct {
		podselection.Selection
		least float64
	}
	var policies []policy
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if spec.MinSavingsPerMove == nil || list.Items[i].Annotations[kcloudv1alpha1.AnnotationDisabled] == "true" {
			continue
		}
		selected, err := podselection.Read(ctx, r.Client, spec.Selection)
		if err != nil {
			return nil, fmt.Errorf("CostPolicy %s: %w", list.Items[i].Name, err)
		}
		policies = append(policies, policy{selected, *spec.MinSavingsPerMove})
	}
	return func(p *corev1.Pod) float64 {
		least := r.Repack.MinSavingsPerMove
		for _, policy := range policies {
			if policy.Has(p) {
				least = max(least, policy.least)
			}
		}
		return least
	}, nil
}

// machines are the instance types that a NodePool can open now.
func (r *repacking) machines(ctx context.Context, pool *karpv1.NodePool) ([]repack.Machine, error) {
	all, err := r.CloudProvider.GetInstanceTypes(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("asking for the instance types of NodePool %s: %w", pool.Name, err)
	}
	out := []repack.Machine{}
	for _, it := range all {
		if offerings := it.Offerings.Launchable(); len(offerings) > 0 {
			out = append(out, repack.Machine{Allocatable: it.Allocatable(), Price: offerings.Cheapest().Price})
		}
	}
	return out, nil
}

// search returns the plan with the highest net saving; nil for none.
func (r *repacking) search(ctx context.Context, nodes []repackNode) (*repackPlan, error) {
	ctx, cancel := context.WithTimeout(ctx, repackTimeout)
	defer cancel()
	var best *repackPlan
	set, _, err := repack.Search(ctx, len(nodes), func(ctx context.Context, set []int) (float64, error) {
		chosen := lo.Map(set, func(i, _ int) repackNode { return nodes[i] })
		plan, err := r.plan(ctx, chosen)
		if err != nil || plan == nil {
			return 0, err
		}
		if best == nil || plan.net > best.net || plan.net == best.net && len(set) < len(best.command.Candidates) {
			best = plan
		}
		return plan.net, nil
	})
	if ctx.Err() != nil {
		err = nil // a simulation that was cut short; what was found before it holds
	}
	if err != nil || len(set) == 0 {
		return nil, err
	}
	return best, nil
}

// validate computes the plan again when it has held for a while. Candidates that are gone, nominated or over the budgets by
// then end it.
func (r *repacking) validate(ctx context.Context, plan repackPlan) ([]disruption.Command, error) {
	select {
	case <-ctx.Done():
		return nil, nil
	case <-r.Clock.After(repackDelay):
	}
	current, err := r.current(ctx, plan.command)
	if err != nil {
		return nil, err
	}
	var again *repackPlan
	if current != nil {
		if again, err = r.planUnder(ctx, current, plan.most); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	if again == nil || again.net <= 0 {
		plan.command.EmitRejectedEvents(r.Recorder, "the cluster has changed")
		metrics.RepackSearches.WithLabelValues(metrics.RepackOutdated).Inc()
		return nil, nil
	}
	metrics.RepackSearches.WithLabelValues(metrics.RepackFound).Inc()
	metrics.RepackSavings.Add(again.saving)
	log.FromContext(ctx).Info("repacking nodes", "nodes", again.command.SourceNodeNames(), "machines", len(again.command.Replacements),
		"pods", again.moves, "dollarsPerHour", again.command.SourceCost(), "savedDollarsPerHour", again.saving)
	return []disruption.Command{again.command}, nil
}

// current are the nodes of a command as they are now; nil where one may no longer be closed.
func (r *repacking) current(ctx context.Context, c disruption.Command) ([]repackNode, error) {
	names := c.SourceNodeNames()
	candidates, err := disruption.GetCandidates(ctx, r.Cluster, r.Client, r.Recorder, r.Clock, r.CloudProvider, r.ShouldDisrupt, r.Class(), r.Queue)
	if err != nil {
		return nil, fmt.Errorf("determining candidates: %w", err)
	}
	candidates = lo.Filter(candidates, func(n *disruption.Candidate, _ int) bool {
		return slices.Contains(names, n.Name()) && !r.Cluster.IsNodeNominated(n.ProviderID())
	})
	budgets, err := disruption.BuildDisruptionBudgetMapping(ctx, r.Cluster, r.Clock, r.Client, r.CloudProvider, r.Recorder, r.Reason())
	if err != nil {
		return nil, fmt.Errorf("reading disruption budgets: %w", err)
	}
	nodes, err := r.nodes(ctx, budgets, candidates)
	if err != nil || len(nodes) < len(names) {
		return nil, err
	}
	return nodes, nil
}

// hours is for how long a saving counts: the mean of the pods' remaining lives, where those are known, within the horizon.
func (r *repacking) hours(pods []*corev1.Pod) float64 {
	if len(pods) == 0 {
		return repackHorizon.Hours()
	}
	return lo.SumBy(pods, func(p *corev1.Pod) float64 { return remaining(p, r.Clock.Now()).Hours() }) / float64(len(pods))
}

// remaining is how long a pod will run at most, within the horizon.
func remaining(p *corev1.Pod, now time.Time) time.Duration {
	deadline := p.Spec.ActiveDeadlineSeconds
	if deadline == nil || p.Status.StartTime == nil {
		return repackHorizon
	}
	if *deadline > int64(math.MaxInt64/time.Second) {
		return repackHorizon
	}
	return min(repackHorizon, max(0, p.Status.StartTime.Add(time.Duration(*deadline)*time.Second).Sub(now)))
}

// podsOf are the pods of nodes, by UID.
func podsOf(nodes []repackNode) map[types.UID]*corev1.Pod {
	out := map[types.UID]*corev1.Pod{}
	for _, n := range nodes {
		for _, p := range n.pods {
			out[p.UID] = p
		}
	}
	return out
}

// cheaper is the better of two plans, of which any may be nil.
func cheaper(a, b *repackPlan) *repackPlan {
	if a == nil || b != nil && cmp.Compare(b.net, a.net) > 0 {
		return b
	}
	return a
}
