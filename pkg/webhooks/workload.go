package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// PathPlaceWorkloads is the path of the webhook for pods that a WorkloadOptimizer governs by their label.
const PathPlaceWorkloads = "/place-workloads"

// Karpenter's label of spot machines.
const (
	capacityTypeLabel = "karpenter.sh/capacity-type"
	capacityTypeSpot  = "spot"
)

// spotWeight is that of the preference for spot machines: half of what a placementPolicy may give one of its own.
const spotWeight = 50

// placeWorkload gives a pod the placement of the WorkloadOptimizer that its label names. It never refuses: without an answer the pod
// is created as it is (failurePolicy Ignore), and so it is while there is no such WorkloadOptimizer.
func (h Handlers) placeWorkload(ctx context.Context, req admission.Request) (answer admission.Response) {
	defer func() {
		if fault := recover(); fault != nil { // which would be taken for a refusal
			log.FromContext(ctx).Error(fmt.Errorf("panic: %v", fault), "The pod is created without the placement of its WorkloadOptimizer")
			answer = admission.Allowed("")
		}
	}()
	pod, _, err := decodePod(req)
	if err != nil {
		return admission.Allowed("") // the API server says what is wrong with it
	}
	wo := &kcloudv1alpha1.WorkloadOptimizer{}
	key := client.ObjectKey{Namespace: req.Namespace, Name: pod.Labels[kcloudv1alpha1.LabelWorkloadOptimizer]}
	if key.Name == "" || h.Workloads == nil {
		return admission.Allowed("")
	}
	if err := h.Workloads.Get(ctx, key, wo); err != nil {
		if client.IgnoreNotFound(err) != nil {
			log.FromContext(ctx).Error(err, "The pod is created without the placement of its WorkloadOptimizer", "WorkloadOptimizer", key)
		}
		return admission.Allowed("")
	}
	placed := PlaceWorkload(pod, wo)
	if equality.Semantic.DeepEqual(placed, pod) {
		return admission.Allowed("")
	}
	// Both as this program knows pods, so that the patch leaves alone what it does not know.
	before, err := json.Marshal(pod)
	if err != nil {
		return admission.Allowed("")
	}
	after, err := json.Marshal(placed)
	if err != nil {
		return admission.Allowed("")
	}
	if answer = admission.PatchResponseFromRaw(before, after); !answer.Allowed {
		return admission.Allowed("")
	}
	return answer
}

// placeable leaves out pods whose node is decided otherwise: bound ones, those that a migration pins to its target, and those of
// DaemonSets, whose controller does not know what a webhook adds.
func placeable(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	_, pinned := pod.Annotations[mckubev1alpha1.AnnotationPinned]
	return pod.Spec.NodeName == "" && !pinned && (owner == nil || owner.Kind != "DaemonSet")
}

// validLabel says whether the API server would take a pod that asks for the label. The WorkloadOptimizer's status says which it would not.
func validLabel(key, value string) bool {
	return len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
}

// PlaceWorkload returns the pod with what its WorkloadOptimizer says of its nodes: labels that they must have where the pod says nothing of them, and
// preferences for labels and for spot machines. What the pod says itself stands. The pod that was given is left alone;
// placing twice is placing once.
func PlaceWorkload(pod *corev1.Pod, wo *kcloudv1alpha1.WorkloadOptimizer) *corev1.Pod {
	out := pod.DeepCopy()
	if !placeable(pod) || !wo.DeletionTimestamp.IsZero() || wo.Annotations[kcloudv1alpha1.AnnotationDisabled] == "true" {
		return out
	}
	if policy := wo.Spec.PlacementPolicy; policy != nil {
		for key, value := range policy.NodeSelector {
			if _, own := out.Spec.NodeSelector[key]; own || !validLabel(key, value) {
				continue
			}
			if out.Spec.NodeSelector == nil {
				out.Spec.NodeSelector = map[string]string{}
			}
			out.Spec.NodeSelector[key] = value
		}
		for _, a := range policy.Affinity {
			if validLabel(a.Key, a.Value) {
				prefer(out, a.Key, a.Value, min(100, max(1, a.Weight)))
			}
		}
	}
	if limit := wo.Spec.CostConstraints; limit != nil && limit.PreferSpot && !says(out, capacityTypeLabel) {
		prefer(out, capacityTypeLabel, capacityTypeSpot, spotWeight)
	}
	return out
}

// prefer adds a preference for nodes with the label, unless the pod has the same.
func prefer(pod *corev1.Pod, key, value string, weight int32) {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	term := corev1.PreferredSchedulingTerm{Weight: weight, Preference: corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}},
	}}
	list := &pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if !slices.ContainsFunc(*list, func(t corev1.PreferredSchedulingTerm) bool { return equality.Semantic.DeepEqual(t, term) }) {
		*list = append(*list, term)
	}
}

// says tells whether the pod requires or prefers something of a label of its node.
func says(pod *corev1.Pod, key string) bool {
	if _, selects := pod.Spec.NodeSelector[key]; selects {
		return true
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return false
	}
	names := func(t corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return r.Key == key })
	}
	if required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil && slices.ContainsFunc(required.NodeSelectorTerms, names) {
		return true
	}
	return slices.ContainsFunc(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution, func(t corev1.PreferredSchedulingTerm) bool {
		return names(t.Preference)
	})
}
