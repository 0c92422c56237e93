package disruption

import (
	"context"
	"fmt"
	"slices"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// housed are the objections to a command that come from the admission test: Karpenter counts bandwidths, and where it
// plans a pod there must also be a core that admits its containers. Pods that it plans onto a replacement must fit
// there, all of them; the others on nodes that stay, which must have what else they ask for. Instance types of a replacement whose cores would not do are taken
// off its list.
func (d Dependencies) housed(ctx context.Context, s *state.Snapshot, c *disruption.Command) []objection {
	nodes := c.SourceNodeNames()
	elsewhere := map[types.UID]bool{}
	for _, r := range c.Replacements {
		pods := lo.Map(r.Pods, func(p *corev1.Pod, _ int) types.UID { return p.UID })
		if r.IsStaticNodeClaim {
			pods = podsOn(s, nodes)
		}
		refused, err := d.narrow(ctx, s, r, pods)
		if err != nil {
			return []objection{{nodes[0], ReasonNoCore, fmt.Sprintf("it is not known what cores the replacement will have: %v", err)}}
		}
		if len(refused) > 0 {
			return []objection{{nodes[0], ReasonNoCore, fmt.Sprintf("no machine that could replace it has a core that admits %s", few(lo.Map(refused, func(v state.ServerView, _ int) string { return containerOf(v) })))}}
		}
		for _, uid := range pods {
			elsewhere[uid] = true
		}
	}
	return homeless(s, nodes, elsewhere, d.room(c))
}

// room is what nodes have beside cores: where the simulation has put a pod, there is room for it; on any other node, as much as the simulation
// has left. What of a pod the simulation has not placed is not known to need any.
func (d Dependencies) room(c *disruption.Command) state.Room {
	planned, asks, left := map[types.UID]string{}, map[types.UID]corev1.ResourceList{}, map[string]corev1.ResourceList{}
	for n := range d.Cluster.Nodes() {
		left[n.Name()] = n.Available()
	}
	give := func(pod types.UID, node string) { left[node] = resources.Subtract(left[node], asks[pod]) }
	for _, n := range c.Results.ExistingNodes {
		for _, pod := range n.Pods {
			planned[pod.UID], asks[pod.UID] = n.Name(), resources.RequestsForPods(pod)
			give(pod.UID, n.Name())
		}
	}
	return func(pod types.UID, node string) bool {
		if at, ok := planned[pod]; !ok || at == node {
			return true
		}
		if !resources.Fits(asks[pod], left[node]) {
			return false
		}
		give(pod, node)
		return true
	}
}

// narrow keeps of a replacement's instance types those with cores for the pods. When there is none, it lists the
// containers that the last one has no core for, and leaves the list as it is.
func (d Dependencies) narrow(ctx context.Context, s *state.Snapshot, r *disruption.Replacement, pods []types.UID) ([]state.ServerView, error) {
	if !slices.ContainsFunc(pods, func(uid types.UID) bool { p, ok := s.Pod(uid); return ok && len(p.Governed) > 0 }) {
		return nil, nil
	}
	options, err := d.options(ctx, r)
	if err != nil {
		return nil, err
	}
	var fit karpcloud.InstanceTypes
	var refused []state.ServerView
	judged := layouts{}
	for _, it := range options {
		cores, err := cloudprovider.CoresOf(it)
		if err != nil {
			return nil, err
		}
		broken := judged.judge(s, cores, pods)
		if len(broken) > 0 {
			refused = broken
			continue
		}
		fit = append(fit, it)
	}
	switch {
	case len(fit) == 0 && len(refused) == 0:
		return nil, fmt.Errorf("NodePool %s has no instance type for it", r.NodePoolName)
	case len(fit) == 0 || r.IsStaticNodeClaim: // the provider chooses among all of a static NodePool's
		return refused, nil
	}
	if _, _, err := fit.SatisfiesMinValues(r.Requirements); err != nil {
		return nil, fmt.Errorf("of the instance types with cores for its containers: %w", err)
	}
	r.InstanceTypeOptions = fit
	return nil, nil
}

// options are the instance types of which one will be launched.
func (d Dependencies) options(ctx context.Context, r *disruption.Replacement) (karpcloud.InstanceTypes, error) {
	if !r.IsStaticNodeClaim {
		return r.InstanceTypeOptions, nil
	}
	pool := &karpv1.NodePool{}
	if err := d.Client.Get(ctx, types.NamespacedName{Name: r.NodePoolName}, pool); err != nil {
		return nil, fmt.Errorf("reading NodePool %s: %w", r.NodePoolName, err)
	}
	all, err := d.CloudProvider.GetInstanceTypes(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("asking for the instance types of NodePool %s: %w", pool.Name, err)
	}
	return lo.Filter(all, func(it *karpcloud.InstanceType, _ int) bool {
		return r.Requirements.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels)
	}), nil
}

// layouts remember what was judged: hundreds of instance types have few layouts of cores.
type layouts []layout

type layout struct {
	cores  []rt.Core
	broken []state.ServerView
}

func (l *layouts) judge(s *state.Snapshot, cores []rt.Core, pods []types.UID) []state.ServerView {
	for _, known := range *l {
		if slices.Equal(known.cores, cores) {
			return known.broken
		}
	}
	broken := s.FitsNew(cores, pods)
	*l = append(*l, layout{cores, broken})
	return broken
}

// podsOn are the pods with real-time containers on nodes.
func podsOn(s *state.Snapshot, nodes []string) (out []types.UID) {
	for _, name := range nodes {
		n, ok := s.NodeView(name)
		if !ok {
			continue
		}
		for _, v := range n.Servers {
			if v.McKube != nil && !slices.Contains(out, v.PodUID) {
				out = append(out, v.PodUID)
			}
		}
	}
	return out
}
