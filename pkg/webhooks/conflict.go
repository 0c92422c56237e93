package webhooks

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// conflict finds another McKube that provably governs a container that m governs too: both name the
// same pod, every pod of the one's selector is in the other's, or a pod that exists is in both. What cannot be
// proven now, the pod's own admission finds.
//
// It takes time in the number of the namespace's McKubes and pods, and ends with ctx: the error is then that of ctx.
func conflict(ctx context.Context, m *mcv1.McKube, cluster Cluster) (field.ErrorList, error) {
	mine := requirementsOf(m.Spec.Selector)
	for _, other := range cluster.McKubesIn(m.Namespace) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !rivals(m, other) {
			continue
		}
		if path, value, ok := samePods(m, mine, other); ok {
			return field.ErrorList{taken(path, value, other.Name, "the same pods")}, nil
		}
	}
	for _, pod := range cluster.PodsFor(m) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		container, err := mcv1.ContainerOf(m, pod)
		if err != nil {
			continue
		}
		for _, other := range cluster.McKubesFor(pod) {
			if theirs, err := mcv1.ContainerOf(other, pod); rivals(m, other) && err == nil && theirs == container {
				path, value := target(m)
				return field.ErrorList{taken(path, value, other.Name, fmt.Sprintf("container %s of pod %s", container, pod.Name))}, nil
			}
		}
	}
	return nil, nil
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

// samePods tells that every pod of one is a pod of the other, whatever pods there are. mine are m's requirements.
func samePods(m *mcv1.McKube, mine requirements, other *mcv1.McKube) (*field.Path, any, bool) {
	path, value := target(m)
	if (m.Spec.Selector == nil) != (other.Spec.Selector == nil) {
		return nil, nil, false
	}
	if m.Spec.Selector == nil {
		return path, value, m.Spec.Podname != "" && m.Spec.Podname == other.Spec.Podname
	}
	theirs := requirementsOf(other.Spec.Selector)
	return path, value, mine.allIn(theirs) || theirs.allIn(mine)
}

// requirements are those of a selector, as text. Nil: the selector cannot be read.
type requirements sets.Set[string]

func requirementsOf(selector *metav1.LabelSelector) requirements {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil
	}
	all := requirements{}
	list, _ := parsed.Requirements()
	for _, r := range list {
		all[r.String()] = sets.Empty{}
	}
	return all
}

// allIn tells that each of r is among others, so that every pod of theirs is one of r's.
func (r requirements) allIn(others requirements) bool {
	return r != nil && others != nil && sets.Set[string](others).IsSuperset(sets.Set[string](r))
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
