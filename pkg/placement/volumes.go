package placement

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

// unreachable is why a volume of the pod cannot be had on the node; empty: all can. Karpenter passes over local volumes, as it looks
// for nodes to open, on which they could not be anyway.
func (s *Simulator) unreachable(ctx context.Context, pod *corev1.Pod, node *corev1.Node, gone map[types.UID]bool) (string, error) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}, claim); err != nil {
			return missing("PersistentVolumeClaim "+v.PersistentVolumeClaim.ClaimName, err)
		}
		if user, err := s.alone(ctx, claim, pod, gone); user != "" || err != nil {
			return user, err
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

// alone is who has a claim that one pod may use at a time, and stays; empty for nobody.
func (s *Simulator) alone(ctx context.Context, claim *corev1.PersistentVolumeClaim, pod *corev1.Pod, gone map[types.UID]bool) (string, error) {
	if !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
		return "", nil
	}
	pods := &corev1.PodList{}
	if err := s.Client.List(ctx, pods, client.InNamespace(claim.Namespace)); err != nil {
		return "", fmt.Errorf("listing who uses PersistentVolumeClaim %s: %w", claim.Name, err)
	}
	for i := range pods.Items {
		o := &pods.Items[i]
		uses := slices.ContainsFunc(o.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
		})
		if uses && o.UID != pod.UID && !gone[o.UID] && o.Spec.NodeName != "" && !podutils.IsTerminal(o) {
			return fmt.Sprintf("PersistentVolumeClaim %s is for one pod at a time, and pod %s/%s has it", claim.Name, o.Namespace, o.Name), nil
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
