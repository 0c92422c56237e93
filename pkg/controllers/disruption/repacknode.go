package disruption

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/podselection"
	"github.com/mainspring-rt/mainspring/pkg/repack"
)

// repackHorizon is how far ahead a saving counts: what runs longer is repacked again by then.
const repackHorizon = 24 * time.Hour

// repackNode is a candidate with its pods that would move.
type repackNode struct {
	*disruption.Candidate
	pods []*corev1.Pod
	// hours is how long its price is paid, within the horizon: until its last pod has ended, or it expires.
	hours float64
	// due is what its pods have to save when they move, in USD.
	due float64
}

// nodes reads the candidates, those first that are worth least for what they cost.
func (r *repacking) nodes(ctx context.Context, candidates []*disruption.Candidate) ([]repackNode, error) {
	all, worth := make([]repackNode, len(candidates)), make([]repack.Node, len(candidates))
	minSavings, err := r.minSavings(ctx)
	if err != nil {
		return nil, err
	}
	costs := dominantCosts{repacking: r, machines: map[string][]repack.Machine{}, known: map[string]float64{}}
	for i, c := range candidates {
		pods, err := c.CurrentlyReschedulablePods(ctx, r.Client, r.Clock, r.Recorder)
		if err != nil {
			return nil, fmt.Errorf("listing the pods of node %s: %w", c.Name(), err)
		}
		cost, err := costs.of(ctx, c.NodePool, pods)
		if err != nil {
			return nil, err
		}
		all[i] = repackNode{Candidate: c, pods: pods, hours: min(lastsFor(pods, r.Clock.Now()), expiresIn(c.NodeClaim, r.Clock.Now())), due: lo.SumBy(pods, minSavings)}
		worth[i] = repack.Node{Price: c.Price, Moves: len(pods), DominantCost: cost}
	}
	return lo.Map(repack.Order(worth), func(i, _ int) repackNode { return all[i] }), nil
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

// dominantCosts remembers what pods are worth: many ask for the same.
type dominantCosts struct {
	*repacking
	machines map[string][]repack.Machine // by NodePool
	known    map[string]float64          // by NodePool and requests
}

// of sums up what pods are worth on the machines of a NodePool.
func (c *dominantCosts) of(ctx context.Context, pool *karpv1.NodePool, pods []*corev1.Pod) (float64, error) {
	machines, ok := c.machines[pool.Name]
	if !ok {
		var err error
		if machines, err = c.openable(ctx, pool); err != nil {
			return 0, err
		}
		c.machines[pool.Name] = machines
	}
	sum := 0.0
	for _, p := range pods {
		requests := resources.RequestsForPods(p)
		key := pool.Name
		for _, name := range slices.Sorted(maps.Keys(requests)) {
			quantity := requests[name]
			key += strings.Join([]string{"", string(name), quantity.String()}, "\x00")
		}
		if _, ok := c.known[key]; !ok {
			c.known[key] = repack.DominantCost(requests, machines)
		}
		sum += c.known[key]
	}
	return sum, nil
}

// openable are the machines that a NodePool can open now.
func (r *repacking) openable(ctx context.Context, pool *karpv1.NodePool) ([]repack.Machine, error) {
	all, err := r.CloudProvider.GetInstanceTypes(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("asking for the instance types of NodePool %s: %w", pool.Name, err)
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(pool.Spec.Template.Spec.Requirements...)
	wanted.Add(scheduling.NewLabelRequirements(pool.Spec.Template.Labels).Values()...)
	var out []repack.Machine
	for _, it := range all {
		if !wanted.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) {
			continue
		}
		for _, o := range it.Offerings.Launchable().Compatible(wanted) {
			if cloudprovider.UsablePrice(o.Price) {
				out = append(out, repack.Machine{Allocatable: it.Allocatable(), Price: o.Price})
			}
		}
	}
	return out, nil
}

// lastsFor is for how many hours a machine with such pods is paid, within the horizon: until the last of them has ended.
func lastsFor(pods []*corev1.Pod, now time.Time) float64 {
	return lo.Max(lo.Map(pods, func(p *corev1.Pod, _ int) float64 { return remaining(p, now).Hours() }))
}

// remaining is how long a pod will run at most, within the horizon.
func remaining(p *corev1.Pod, now time.Time) time.Duration {
	deadline := p.Spec.ActiveDeadlineSeconds
	if deadline == nil || p.Status.StartTime == nil || *deadline > int64(math.MaxInt64/time.Second) {
		return repackHorizon
	}
	return within(p.Status.StartTime.Add(time.Duration(*deadline) * time.Second).Sub(now))
}

// expiresIn is in how many hours a node expires, within the horizon: Karpenter makes its place anew then.
func expiresIn(c *karpv1.NodeClaim, now time.Time) float64 {
	if c.Spec.ExpireAfter.Duration == nil {
		return repackHorizon.Hours()
	}
	return within(c.CreationTimestamp.Add(*c.Spec.ExpireAfter.Duration).Sub(now)).Hours()
}

func within(d time.Duration) time.Duration { return min(repackHorizon, max(0, d)) }

// repackAttempts are the nodes of commands that began. One that is a candidate again was not closed: a machine did not
// come, or the nodes were needed. It rests, for twice as long each time. Karpenter would open as many machines again at once.
type repackAttempts struct{ nodes map[string]repackAttempt }

type repackAttempt struct {
	times int
	last  time.Time
}

const (
	// repackRest is how long a node rests from the beginning of the first command that did not close it (Karpenter gives a command
	// up after 10 minutes), and repackLongestRest after many.
	repackRest        = 30 * time.Minute
	repackLongestRest = 6 * time.Hour
)

func newRepackAttempts() *repackAttempts { return &repackAttempts{map[string]repackAttempt{}} }

func (a *repackAttempts) note(nodes []string, now time.Time) {
	maps.DeleteFunc(a.nodes, func(_ string, t repackAttempt) bool { return now.Sub(t.last) > 2*repackLongestRest })
	for _, name := range nodes {
		a.nodes[name] = repackAttempt{a.nodes[name].times + 1, now}
	}
}

func (a *repackAttempts) rests(node string, now time.Time) bool {
	t, ok := a.nodes[node]
	return ok && now.Sub(t.last) < min(repackRest<<min(t.times-1, 10), repackLongestRest)
}
