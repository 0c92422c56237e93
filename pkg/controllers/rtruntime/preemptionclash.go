package rtruntime

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// clash tells whether two pods cannot be on one node: both want a port of it, or one must not be beside the other. Room that
// is made for a pod beside one that stays and clashes is made for nothing.
func clash(a, b *corev1.Pod) bool {
	return portsClash(a, b) || shuns(a, b) || shuns(b, a)
}

func portsClash(a, b *corev1.Pod) bool {
	wanted := scheduling.GetHostPorts(a)
	return slices.ContainsFunc(scheduling.GetHostPorts(b), func(p scheduling.HostPort) bool {
		return slices.ContainsFunc(wanted, p.Matches)
	})
}

// shuns tells whether a pod requires not to be where the other is. Who is on its node is in each other domain of the node, too.
func shuns(a, b *corev1.Pod) bool {
	if a.Spec.Affinity == nil || a.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	return slices.ContainsFunc(a.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(t corev1.PodAffinityTerm) bool {
		selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
		return err == nil && selector.Matches(labels.Set(b.Labels)) && reaches(t, a.Namespace, b.Namespace)
	})
}

// reaches tells whether a term of a pod in a namespace speaks of pods in another. What a selector of namespaces by labels takes is not known here.
func reaches(t corev1.PodAffinityTerm, from, to string) bool {
	switch {
	case slices.Contains(t.Namespaces, to):
		return true
	case t.NamespaceSelector != nil:
		return len(t.NamespaceSelector.MatchLabels) == 0 && len(t.NamespaceSelector.MatchExpressions) == 0
	}
	return len(t.Namespaces) == 0 && from == to
}
