package v1

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/cpuset"
)

// MatchPod tells whether m governs pod: it is in m's namespace and has podname's name, or selector's
// labels. A selector that cannot be read, which the API refuses, governs nothing.
func MatchPod(m *McKube, pod *corev1.Pod) bool {
	if m.Namespace != pod.Namespace {
		return false
	}
	if m.Spec.Selector == nil {
		return m.Spec.Podname != "" && m.Spec.Podname == pod.Name
	}
	selector, err := metav1.LabelSelectorAsSelector(m.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(pod.Labels))
}

// ContainerOf names the container of pod that m governs: the one that spec.container names or, where
// that is empty, the pod's only one. Containers that run to their end before the others start cannot
// be governed; those that start before the others and stay (init containers with restartPolicy
// Always) can, when they are named.
func ContainerOf(m *McKube, pod *corev1.Pod) (string, error) {
	names := containerNames(pod)
	if m.Spec.Container != "" {
		if slices.Contains(names, m.Spec.Container) {
			return m.Spec.Container, nil
		}
		return "", fmt.Errorf("spec.container of McKube %s is %q, which pod %s does not have; it has %s",
			m.Name, m.Spec.Container, podName(pod), strings.Join(names, ", "))
	}
	if len(pod.Spec.Containers) == 1 {
		return pod.Spec.Containers[0].Name, nil
	}
	return "", fmt.Errorf("spec.container of McKube %s is empty, but pod %s has several containers; it must name one of %s",
		m.Name, podName(pod), strings.Join(names, ", "))
}

// containerNames lists the containers of pod that may be governed.
func containerNames(pod *corev1.Pod) []string {
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			names = append(names, c.Name)
		}
	}
	return names
}

// podName is the pod's name or, before the API server has made one up, what it will begin with.
func podName(pod *corev1.Pod) string {
	if pod.Name != "" {
		return pod.Name
	}
	return pod.GenerateName + "*"
}

// ParseCores reads a cpuset list, "2-3" or "0,2", of numbers up to 9999 into its cores, ascending. Empty means none.
func ParseCores(list string) ([]int, error) {
	const digits = 4 // as the schema has it; every number of a range is written down
	numbers := strings.FieldsFunc(list, func(r rune) bool { return r < '0' || r > '9' })
	if slices.ContainsFunc(numbers, func(n string) bool { return len(n) > digits }) {
		return nil, fmt.Errorf("rtSettings.core is %q; it must be a cpuset list of numbers up to 9999", list)
	}
	set, err := cpuset.Parse(list)
	if err != nil {
		return nil, fmt.Errorf("rtSettings.core is %q; it must be a cpuset list, for example \"2-3\" or \"0,2\": %w", list, err)
	}
	return set.List(), nil
}
