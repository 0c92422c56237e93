package resourcepressure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// annotationLocalVolumes is the cluster autoscaler's: which of its node-local volumes a pod can do without.
const annotationLocalVolumes = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

// rank of a criticality; 0 is for pods without one.
func rank(c mcv1.Criticality) int {
	switch strings.ToLower(string(c)) {
	case "high":
		return 3
	case "middle":
		return 2
	}
	return 1
}

// strategyOf is how a pod is expected to be moved, where its PodMigration does not say: as its McKube wants, then its
// policy, else with a second copy first where a ReplicaSet makes it.
func strategyOf(p *corev1.Pod, governs []*mcv1.McKube, policy *v1alpha1.MigrationPolicy, checkpointing bool) v1alpha1.MigrationStrategy {
	asked := v1alpha1.MigrationStrategy("")
	if policy != nil {
		asked = policy.Spec.Strategy
		checkpointing = checkpointing && (policy.Spec.Checkpointing == nil || *policy.Spec.Checkpointing)
	}
	for _, m := range governs {
		if m.Spec.Migration != nil && m.Spec.Migration.Policy != "" {
			asked = v1alpha1.MigrationStrategy(m.Spec.Migration.Policy)
		}
	}
	if asked != "" && (asked != v1alpha1.StrategyCheckpoint || checkpointing) {
		return asked
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != "ReplicaSet" || slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil }) {
		return v1alpha1.StrategyRestart
	}
	return v1alpha1.StrategySurge
}

// local names a volume that is of the pod's node; empty: none is.
func (w *world) local(ctx context.Context, p *corev1.Pod) (string, error) {
	dispensable := strings.Split(p.Annotations[annotationLocalVolumes], ",")
	for _, v := range p.Spec.Volumes {
		switch {
		case v.HostPath != nil:
			return v.Name, nil
		case v.EmptyDir != nil && !slices.Contains(dispensable, v.Name):
			return v.Name, nil
		case v.PersistentVolumeClaim != nil:
			of, err := w.localClaim(ctx, types.NamespacedName{Namespace: p.Namespace, Name: v.PersistentVolumeClaim.ClaimName})
			if err != nil || of {
				return v.Name, err
			}
		}
	}
	return "", nil
}

// localClaim tells whether a claim is for a volume that only one node has.
func (w *world) localClaim(ctx context.Context, key types.NamespacedName) (bool, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := w.Client.Get(ctx, key, claim); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading PersistentVolumeClaim %s: %w", key, err)
	}
	if claim.Spec.VolumeName == "" {
		return false, nil
	}
	volume := &corev1.PersistentVolume{}
	if err := w.Client.Get(ctx, types.NamespacedName{Name: claim.Spec.VolumeName}, volume); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading PersistentVolume %s: %w", claim.Spec.VolumeName, err)
	}
	return volume.Spec.Local != nil || volume.Spec.HostPath != nil || ofOneNode(volume), nil
}

// ofOneNode tells whether a volume can be had by the node of one name only.
func ofOneNode(v *corev1.PersistentVolume) bool {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return false
	}
	for _, term := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range append(slices.Clone(term.MatchExpressions), term.MatchFields...) {
			if (e.Key == corev1.LabelHostname || e.Key == metav1.ObjectNameField) && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
				return true
			}
		}
	}
	return false
}
