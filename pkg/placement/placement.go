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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

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
	all := s.Cluster.DeepCopyNodes().Active()
	i := slices.IndexFunc(all, func(n *state.StateNode) bool { return n.Node != nil && n.Node.Name == node })
	if i < 0 {
		return "it is gone, or about to go", nil
	}
	target := all[i]
	shapes := make([]*corev1.Pod, len(pods))
	for i, pod := range pods {
		if why, err := s.unreachable(ctx, pod, target.Node); why != "" || err != nil {
			return why, err
		}
		shapes[i] = shape(pod)
	}
	results, err := s.solve(ctx, target, all, shapes)
	if err != nil {
		return "", fmt.Errorf("simulating the placement on node %s: %w", node, err)
	}
	for _, pod := range shapes {
		if _, unplaced := results.PodErrors[pod]; unplaced { // whose words are about nodes that could be opened
			return fmt.Sprintf("pod %s/%s: its requests, tolerations, affinity, topology spread, volumes or host ports keep it off", pod.Namespace, pod.Name), nil
		}
	}
	return "", nil
}

// solve places pods on the target alone, by what is on all nodes.
func (s *Simulator) solve(ctx context.Context, target *state.StateNode, all []*state.StateNode, pods []*corev1.Pod) (scheduling.Results, error) {
	var opts []scheduling.Options
	if options.FromContext(ctx).PreferencePolicy == options.PreferencePolicyIgnore {
		opts = append(opts, scheduling.IgnorePreferences)
	}
	quiet := log.IntoContext(ctx, logging.NopLogger)
	topology, err := scheduling.NewTopology(quiet, s.Client, s.Cluster, all, nil, nil, pods, opts...)
	if err != nil {
		return scheduling.Results{}, err
	}
	nodes := []*state.StateNode{target}
	scheduler := scheduling.NewScheduler(quiet, s.Client, nil, s.Cluster, nodes, topology, nil, nil, s.Recorder, s.Clock, nil, nil, opts...)
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

// unreachable is why a volume of the pod cannot be had on the node; empty: all can. Karpenter passes over local volumes, as it looks
// for nodes to open, on which they could not be anyway.
func (s *Simulator) unreachable(ctx context.Context, pod *corev1.Pod, node *corev1.Node) (string, error) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}, claim); err != nil {
			return missing("PersistentVolumeClaim "+v.PersistentVolumeClaim.ClaimName, err)
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		bound := &corev1.PersistentVolume{}
		if err := s.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, bound); err != nil {
			return missing("PersistentVolume "+claim.Spec.VolumeName, err)
		}
		if !reaches(bound, node) {
			return fmt.Sprintf("volume %s of pod %s/%s cannot be had there", bound.Name, pod.Namespace, pod.Name), nil
		}
	}
	return "", nil
}

// reaches tells whether a volume can be had on a node.
func reaches(v *corev1.PersistentVolume, node *corev1.Node) bool {
	return volume.CheckNodeAffinity(v, node.Labels) == nil
}

// missing says what an error of reading something means.
func missing(what string, err error) (string, error) {
	if apierrors.IsNotFound(err) {
		return what + " does not exist", nil
	}
	return "", fmt.Errorf("reading %s: %w", what, err)
}
