package placement

import (
	"context"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	karpenterscheduling "sigs.k8s.io/karpenter/pkg/scheduling"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// without is a node once some pods have gone from it. It is built of the pods that are on it now: Karpenter's own record has for
// a moment those that have just gone.
func (s *Simulator) without(ctx context.Context, n *state.StateNode, gone map[types.UID]bool) (*state.StateNode, error) {
	pods := &corev1.PodList{}
	if err := s.Client.List(ctx, pods, client.MatchingFields{"spec.nodeName": n.Node.Name}); err != nil {
		return nil, fmt.Errorf("listing the pods on the node: %w", err)
	}
	out := state.NewNode()
	out.Node = n.Node.DeepCopy()
	out.Node.Labels, out.Node.Spec.Taints = n.Labels(), n.Taints()
	if err := s.limit(ctx, out); err != nil {
		return nil, err
	}
	var stay []*corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if gone[pod.UID] || podutils.IsTerminal(pod) {
			continue
		}
		volumes, err := karpenterscheduling.GetVolumes(log.IntoContext(ctx, logging.NopLogger), s.Client, pod)
		if err != nil {
			return nil, fmt.Errorf("reading the volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		out.VolumeUsage().Add(pod, volumes)
		out.HostPortUsage().Add(pod, karpenterscheduling.GetHostPorts(pod))
		stay = append(stay, pod)
	}
	out.Node.Status.Allocatable = resources.Subtract(n.Allocatable(), resources.RequestsForPods(stay...))
	return out, nil
}

// limit sets how many volumes of each driver can be attached to a node, where the drivers say so.
func (s *Simulator) limit(ctx context.Context, n *state.StateNode) error {
	drivers := &storagev1.CSINode{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: n.Node.Name}, drivers); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading how many volumes can be attached: %w", err)
		}
		return nil
	}
	for _, d := range drivers.Spec.Drivers {
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			n.VolumeUsage().AddUnbounded(d.Name)
			continue
		}
		n.VolumeUsage().AddLimit(d.Name, int(*d.Allocatable.Count))
	}
	return nil
}

// level has spread over hosts be judged as the scheduler does, from the host that has fewest: Karpenter takes it that one with none
// can always be opened.
func (q *question) level(ctx context.Context, pod *corev1.Pod, gone map[types.UID]bool) error {
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		if c.TopologyKey != corev1.LabelHostname || c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		fewest, err := q.fewest(ctx, pod, *c, gone)
		if err != nil {
			return err
		}
		c.MaxSkew += fewest
	}
	return nil
}

// fewest is how many pods that a constraint counts are on the host that has fewest of them.
func (q *question) fewest(ctx context.Context, pod *corev1.Pod, c corev1.TopologySpreadConstraint, gone map[types.UID]bool) (int32, error) {
	on, err := q.counts(ctx, pod, c, gone)
	if err != nil {
		return 0, err
	}
	filter := scheduling.MakeTopologyNodeFilter(pod,
		ptr.Deref(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore), ptr.Deref(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor))
	fewest, hosts := int32(math.MaxInt32), int32(0)
	for _, n := range q.nodes {
		if n.Node != nil && filter.Matches(n.Node.Spec.Taints, karpenterscheduling.NewLabelRequirements(n.Node.Labels)) {
			hosts++
			fewest = min(fewest, on[n.Node.Name])
		}
	}
	if hosts == 0 || hosts < ptr.Deref(c.MinDomains, 0) {
		return 0, nil
	}
	return fewest, nil
}

// counts is how many pods that a constraint counts are on each node.
func (q *question) counts(ctx context.Context, pod *corev1.Pod, c corev1.TopologySpreadConstraint, gone map[types.UID]bool) (map[string]int32, error) {
	selector := c.LabelSelector.DeepCopy()
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok && selector != nil {
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
		}
	}
	pods := &corev1.PodList{}
	if err := q.Client.List(ctx, pods, scheduling.TopologyListOptions(pod.Namespace, selector)); err != nil {
		return nil, fmt.Errorf("listing the pods that a topology spread counts: %w", err)
	}
	on := map[string]int32{}
	for i := range pods.Items {
		if o := &pods.Items[i]; !gone[o.UID] && o.UID != pod.UID && !scheduling.IgnoredForTopology(o) {
			on[o.Spec.NodeName]++
		}
	}
	return on, nil
}
