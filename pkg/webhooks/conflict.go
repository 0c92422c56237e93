package webhooks

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// conflict finds another McKube that provably governs a container that m governs too: both name the
// same pod, every pod of the one's selector is in the other's, or a pod that exists is in both. What cannot be
// proven now, the pod's own admission finds.
func conflict(m *mcv1.McKube, cluster Cluster) *field.Error {
	for _, other := range cluster.McKubesIn(m.Namespace) {
		if !rivals(m, other) {
			continue
		}
		if path, value, ok := samePods(m, other); ok {
			return taken(path, value, other.Name, "the same pods")
		}
	}
	for _, pod := range cluster.PodsFor(m) {
		container, err := mcv1.ContainerOf(m, pod)
		if err != nil {
			continue
		}
		for _, other := range cluster.McKubesFor(pod) {
			if theirs, err := mcv1.ContainerOf(other, pod); rivals(m, other) && err == nil && theirs == container {
				path, value := target(m)
				return taken(path, value, other.Name, fmt.Sprintf("container %s of pod %s", container, pod.Name))
			}
		}
	}
	return nil
}

func taken(path *field.Path, value any, other, what string) *field.Error {
	return field.Invalid(path, value, fmt.Sprintf("McKube %s governs %s already; a container has one McKube, so change or delete that one, or name another container", other, what))
}

// rivals are two McKubes with settings whose containers may be the same one. A McKube that names no
// container is for pods with a single one, which is then also the one that the other names.
func rivals(m, other *mcv1.McKube) bool {
	if other.Name == m.Name || m.Spec.RTSettings == nil || other.Spec.RTSettings == nil {
		return false
	}
	return m.Spec.Container == "" || other.Spec.Container == "" || m.Spec.Container == other.Spec.Container
}

// target is the field by which m chooses its pods.
func target(m *mcv1.McKube) (*field.Path, any) {
	if m.Spec.Selector == nil {
		return spec.Child("podname"), m.Spec.Podname
	}
	return spec.Child("selector"), metav1.FormatLabelSelector(m.Spec.Selector)
}

// samePods tells that every pod of one is a pod of the other, whatever pods there are.
func samePods(m, other *mcv1.McKube) (*field.Path, any, bool) {
	path, value := target(m)
	if (m.Spec.Selector == nil) != (other.Spec.Selector == nil) {
		return nil, nil, false
	}
	if m.Spec.Selector == nil {
		return path, value, m.Spec.Podname != "" && m.Spec.Podname == other.Spec.Podname
	}
	return path, value, implies(m.Spec.Selector, other.Spec.Selector) || implies(other.Spec.Selector, m.Spec.Selector)
}

// implies tells that a's requirements are all among b's, so that every pod of b is one of a.
func implies(a, b *metav1.LabelSelector) bool {
	wide, err := metav1.LabelSelectorAsSelector(a)
	if err != nil {
		return false
	}
	narrow, err := metav1.LabelSelectorAsSelector(b)
	if err != nil {
		return false
	}
	wanted, _ := wide.Requirements()
	given, _ := narrow.Requirements()
	for _, r := range wanted {
		if !slices.ContainsFunc(given, func(g labels.Requirement) bool { return g.String() == r.String() }) {
			return false
		}
	}
	return true
}

// containerAdvice warns of pods that exist and do not have the container.
func containerAdvice(m *mcv1.McKube, cluster Cluster) []string {
	at := slices.IndexFunc(cluster.PodsFor(m), func(pod *corev1.Pod) bool { _, err := mcv1.ContainerOf(m, pod); return err != nil })
	if at < 0 {
		return nil
	}
	_, err := mcv1.ContainerOf(m, cluster.PodsFor(m)[at])
	return []string{err.Error()}
}
