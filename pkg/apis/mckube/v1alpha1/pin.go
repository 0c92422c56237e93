package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationPinned is, on a pod in the place of one that was migrated, the node that its migration has bound it to. A
// controller that asks where the pod could go passes over that: it was for its arrival.
const AnnotationPinned = Group + "/pinned-to"

// Pin has a pod that the scheduler has not seen run on a node and on no other.
func Pin(pod *corev1.Pod, node string) {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, AnnotationPinned, node)
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	}
	for i := range required.NodeSelectorTerms {
		t := &required.NodeSelectorTerms[i]
		t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}})
	}
}

// Unpinned is the pod without what Pin has added to it; the pod itself where that is nothing.
func Unpinned(pod *corev1.Pod) *corev1.Pod {
	node := pod.Annotations[AnnotationPinned]
	if node == "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return pod
	}
	out := pod.DeepCopy()
	delete(out.Annotations, AnnotationPinned)
	affinity := out.Spec.Affinity.NodeAffinity
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	empty := false
	for i := range required.NodeSelectorTerms {
		t := &required.NodeSelectorTerms[i]
		t.MatchFields = slices.DeleteFunc(t.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn && slices.Equal(r.Values, []string{node})
		})
		if len(t.MatchFields) == 0 {
			t.MatchFields = nil
		}
		empty = empty || len(t.MatchFields)+len(t.MatchExpressions) == 0
	}
	if empty { // any node did before, and an empty term matches none
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
	}
	prune(&out.Spec)
	return out
}

// prune leaves out an affinity that asks for nothing.
func prune(spec *corev1.PodSpec) {
	a := spec.Affinity
	if n := a.NodeAffinity; n.RequiredDuringSchedulingIgnoredDuringExecution == nil && len(n.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		a.NodeAffinity = nil
	}
	if a.NodeAffinity == nil && a.PodAffinity == nil && a.PodAntiAffinity == nil {
		spec.Affinity = nil
	}
}
