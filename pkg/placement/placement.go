// Package placement tells whether pods would be placed on a node that is there: by Karpenter's simulation of the scheduler,
// so with requests, taints, affinity and anti-affinity, topology spread, host ports and volumes. Real-time cores are judged
// elsewhere, by the admission test.
package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	karpenterscheduling "sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// errUnsynced: what is not known yet keeps nobody off a node, and so nothing can be told.
var errUnsynced = errors.New("not all nodes are known yet")

// Simulator places pods on nodes in thought. All fields are required.
type Simulator struct {
	Client   client.Client
	Cluster  *state.Cluster
	Recorder events.Recorder
	Clock    clock.Clock
}

// Refusal is why pods, as if they were pending, would not all be placed on a node beside what is there; empty: they would. Their
// ResourceClaims are left out.
func (s *Simulator) Refusal(ctx context.Context, node string, pods []*corev1.Pod) (string, error) {
	return s.Asking(pods...)(ctx, node, nil)
}

// Asking answers the same for several nodes, and once some pods have gone: the nodes are those that there are when it
// is first asked.
func (s *Simulator) Asking(pods ...*corev1.Pod) func(ctx context.Context, node string, gone map[types.UID]bool) (string, error) {
	q := &question{Simulator: s, pods: pods}
	return func(ctx context.Context, node string, gone map[types.UID]bool) (string, error) {
		why, err := q.refusal(ctx, node, gone)
		if err != nil {
			return "", fmt.Errorf("simulating the placement on node %s: %w", node, err)
		}
		return why, nil
	}
}

// question is asked about pods. nodes are all that stay; nil before they were copied.
type question struct {
	*Simulator
	pods  []*corev1.Pod
	nodes []*state.StateNode
}

func (q *question) refusal(ctx context.Context, node string, gone map[types.UID]bool) (string, error) {
	if q.nodes == nil {
		if !q.Cluster.HasSynced() && !q.Cluster.Synced(ctx) {
			return "", errUnsynced
		}
		q.nodes = q.Cluster.DeepCopyNodes().Active()
	}
	i := slices.IndexFunc(q.nodes, func(n *state.StateNode) bool { return n.Node != nil && n.Node.Name == node })
	if i < 0 {
		return "it is gone, or about to go", nil
	}
	shapes := make([]*corev1.Pod, len(q.pods))
	volumes := map[types.UID][]karpenterscheduling.Requirements{}
	for j, pod := range q.pods {
		shapes[j] = shape(pod)
		if why, err := q.unreachable(ctx, pod, q.nodes[i].Node, gone); why != "" || err != nil {
			return why, err
		}
		var err error
		if volumes[pod.UID], err = scheduling.NewVolumeTopology(q.Client).GetRequirements(log.IntoContext(ctx, logging.NopLogger), pod); err != nil {
			return missing("what its volumes need", err)
		}
		if err := q.level(ctx, shapes[j], gone); err != nil {
			return "", err
		}
	}
	target, err := q.without(ctx, q.nodes[i], gone)
	if err != nil {
		return "", err
	}
	results, err := q.solve(ctx, target, shapes, volumes, gone)
	if err != nil {
		return "", err
	}
	for _, pod := range shapes {
		if _, unplaced := results.PodErrors[pod]; unplaced { // whose words are about nodes that could be opened
			return fmt.Sprintf("pod %s/%s: its requests, tolerations, affinity, topology spread, volumes or host ports keep it off", pod.Namespace, pod.Name), nil
		}
	}
	return "", nil
}

// solve places pods on the target alone, by what is on all nodes but for those that have gone. Karpenter counts nobody of
// those for whom a topology is made, so it is made for those as well.
func (q *question) solve(
	ctx context.Context, target *state.StateNode, pods []*corev1.Pod, volumes map[types.UID][]karpenterscheduling.Requirements, gone map[types.UID]bool,
) (scheduling.Results, error) {
	var opts []scheduling.Options
	if options.FromContext(ctx).PreferencePolicy == options.PreferencePolicyIgnore {
		opts = append(opts, scheduling.IgnorePreferences)
	}
	quiet := log.IntoContext(ctx, logging.NopLogger)
	uncounted := slices.Clone(pods)
	for uid := range gone {
		nobody := &corev1.Pod{}
		nobody.UID = uid
		uncounted = append(uncounted, nobody)
	}
	topology, err := scheduling.NewTopology(quiet, q.Client, q.Cluster, q.nodes, nil, nil, uncounted, opts...)
	if err != nil {
		return scheduling.Results{}, err
	}
	for key, domain := range target.Labels() { // Karpenter takes those of a pod's own anti-affinity from NodePools
		topology.Register(key, domain)
	}
	nodes := []*state.StateNode{target}
	scheduler := scheduling.NewScheduler(quiet, q.Client, nil, q.Cluster, nodes, topology, nil, nil, q.Recorder, q.Clock, volumes, nil, opts...)
	results, err := scheduler.Solve(quiet, pods)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil // Karpenter's own time is over: what is not placed by then has an error of its own
	}
	return results, err
}

// shape is the pod as if it were pending, without its claims.
func shape(pod *corev1.Pod) *corev1.Pod {
	out := v1alpha1.Unpinned(pod).DeepCopy()
	out.Spec.NodeName, out.Spec.ResourceClaims = "", nil
	for _, list := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range list {
			list[i].Resources.Claims = nil
		}
	}
	return out
}
