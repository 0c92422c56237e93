package disruption

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/samber/lo"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
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
)

// RepackOptions are the settings of repacking.
type RepackOptions struct {
	Enabled bool
	// MinSavingsPerMove is what each pod that moves has to save within the next day, or in the rest of its life where
	// that is shorter, in USD. Nodes whose pods do not save that stay.
	MinSavingsPerMove float64
}

// repacking closes N nodes for M cheaper ones, where Karpenter's consolidation closes N for none or one. It prices sets of
// nodes by Karpenter's own simulation (package repack). No container of criticality High moves for a lower price.
type repacking struct {
	disruption.Method // single-node consolidation: which nodes are candidates, and for which reason they go
	Dependencies
	totals   map[string]disruption.NodePoolTotals
	attempts *repackAttempts
	// vain is what a search saw that found nothing.
	vain repackView
	// worth is what the command under way saves within the horizon, in USD, before what its moves have to save.
	worth float64
}

// repackView is what a search depends on: the instant of the cluster's last change, candidates and budgets.
type repackView struct {
	changed    time.Time
	candidates []string
	budgets    map[string]int
}

func (v repackView) equal(o repackView) bool {
	return v.changed.Equal(o.changed) && slices.Equal(v.candidates, o.candidates) && maps.Equal(v.budgets, o.budgets)
}

func newRepacking(d Dependencies, attempts *repackAttempts) *repacking {
	consolidation := disruption.MakeConsolidation(d.Clock, d.Cluster, d.Client, d.Provisioner, d.CloudProvider, d.Recorder, d.Queue)
	return &repacking{Method: disruption.NewSingleNodeConsolidation(consolidation), Dependencies: d, attempts: attempts}
}

// ConsolidationType implements disruption.Method.
func (r *repacking) ConsolidationType() string { return repackType }

// SetNodePoolTotals implements disruption.NodePoolTotalsSetter.
func (r *repacking) SetNodePoolTotals(totals map[string]disruption.NodePoolTotals) { r.totals = totals }

// ShouldDisrupt implements disruption.Method.
func (r *repacking) ShouldDisrupt(ctx context.Context, c *disruption.Candidate) bool {
	return cloudprovider.UsablePrice(c.Price) && r.Method.ShouldDisrupt(ctx, c) &&
		highOn(r.Store.Snapshot(), c.Name()) == "" && !r.attempts.rests(c.Name(), r.Clock.Now())
}

// highOn is a container of criticality High that runs on a node; empty for none.
func highOn(s *state.Snapshot, node string) string {
	if n, ok := s.NodeView(node); ok {
		for i := range n.Servers {
			if v := n.Servers[i]; v.McKube != nil && v.Criticality == rt.High {
				return containerOf(v)
			}
		}
	}
	return ""
}

// ComputeCommands implements disruption.Method.
func (r *repacking) ComputeCommands(ctx context.Context, budgets map[string]int, candidates ...*disruption.Candidate) ([]disruption.Command, error) {
	names := lo.Map(candidates, func(c *disruption.Candidate, _ int) string { return c.Name() })
	slices.Sort(names)
	view := repackView{r.Cluster.ConsolidationState(), names, budgets}
	if r.vain.equal(view) {
		return nil, nil
	}
	nodes, err := r.nodes(ctx, candidates)
	if err != nil { // no reason to hold up the other methods
		log.FromContext(ctx).Error(err, "reading what could be repacked")
		return nil, nil
	}
	plan, outcome, err := r.search(ctx, nodes, budgets)
	if err != nil || ctx.Err() != nil {
		return nil, err // what interrupts it searches again
	}
	if plan == nil {
		r.vain = view
		metrics.RepackSearches.WithLabelValues(outcome).Inc()
		return nil, nil
	}
	plan.command.EmitCandidateEvents(r.Recorder)
	return r.validate(ctx, *plan)
}

// search returns the plan that saves the most; nil for none, and why.
func (r *repacking) search(ctx context.Context, nodes []repackNode, budgets map[string]int) (*repackPlan, string, error) {
	limited, cancel := context.WithTimeout(ctx, repackTimeout)
	defer cancel()
	plans := map[string]*repackPlan{}
	pick := func(set []int) []repackNode { return lo.Map(set, func(i, _ int) repackNode { return nodes[i] }) }
	search := repack.Search{
		Nodes: len(nodes),
		Allowed: func(set []int) bool {
			return len(set) <= repackMost && withinBudgets(pick(set), budgets)
		},
		Evaluate: func(ctx context.Context, set []int) (repack.Evaluation, error) {
			plan, stuck, err := r.plan(ctx, pick(set))
			if err != nil {
				return repack.Evaluation{}, err
			}
			e := repack.Evaluation{Stuck: lo.Filter(set, func(i, _ int) bool { return stuck[nodes[i].Name()] })}
			if plan != nil {
				plans[fmt.Sprint(set)], e.Saving = plan, plan.net
			}
			return e, nil
		},
	}
	set, _, err := search.Run(limited)
	if err != nil {
		return nil, "", err
	}
	outcome := metrics.RepackNothing
	if limited.Err() != nil {
		outcome = metrics.RepackTimeout
	}
	return plans[fmt.Sprint(set)], outcome, nil
}

func withinBudgets(nodes []repackNode, budgets map[string]int) bool {
	count := lo.CountValuesBy(nodes, func(n repackNode) string { return n.NodePool.Name })
	return lo.EveryBy(lo.Keys(count), func(pool string) bool { return count[pool] <= budgets[pool] })
}

// validate computes the plan again when it has held for a while. Candidates that are gone, nominated or over the budgets by
// then end it.
func (r *repacking) validate(ctx context.Context, plan repackPlan) ([]disruption.Command, error) {
	select {
	case <-ctx.Done():
		return nil, nil
	case <-r.Clock.After(repackDelay):
	}
	again, err := r.replan(ctx, plan)
	if err != nil || ctx.Err() != nil {
		return nil, err
	}
	if again == nil {
		plan.command.EmitRejectedEvents(r.Recorder, "the cluster has changed")
		metrics.RepackSearches.WithLabelValues(metrics.RepackOutdated).Inc()
		return nil, nil
	}
	r.worth = again.worth
	return []disruption.Command{again.command}, nil
}

// replan makes the plan for the same nodes as they are now; nil where one may no longer be closed, or where it is no longer
// worth its moves. What came while it was simulated counts as well.
func (r *repacking) replan(ctx context.Context, plan repackPlan) (*repackPlan, error) {
	current, err := r.current(ctx, plan.command)
	if err != nil || current == nil {
		return nil, err
	}
	again, err := r.planUnder(ctx, current, plan)
	if err != nil || again == nil {
		return nil, err
	}
	approved, _ := disruption.NewBalancedEvaluator(r.totals, r.Recorder).ApproveCommand(ctx, again.command)
	if current, err = r.current(ctx, plan.command); err != nil || current == nil || !approved {
		return nil, err
	}
	return again, nil
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
	if len(candidates) < len(names) {
		return nil, nil
	}
	budgets, err := disruption.BuildDisruptionBudgetMapping(ctx, r.Cluster, r.Clock, r.Client, r.CloudProvider, r.Recorder, r.Reason())
	if err != nil {
		return nil, fmt.Errorf("reading disruption budgets: %w", err)
	}
	nodes, err := r.nodes(ctx, candidates)
	if err != nil || !withinBudgets(nodes, budgets) {
		return nil, err
	}
	return nodes, nil
}

// begun notes that a command begins that the method has found and that nothing objects to.
func (r *repacking) begun(ctx context.Context, c disruption.Command) {
	metrics.RepackSearches.WithLabelValues(metrics.RepackFound).Inc()
	metrics.RepackSavings.Add(r.worth)
	r.attempts.note(c.SourceNodeNames(), r.Clock.Now())
	log.FromContext(ctx).Info("repacking nodes", "nodes", c.SourceNodeNames(), "machines", len(c.Replacements),
		"dollarsPerHour", c.SourceCost(), "savedDollarsPerHour", c.EstimatedSavings(), "savedDollars", r.worth)
}
