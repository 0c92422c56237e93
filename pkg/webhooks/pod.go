package webhooks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// ValidatePod refuses a pod whose real-time settings contradict its McKubes, each other, or what a
// budget can be. The error names annotation, value and bound; warnings tell what will have no effect.
func ValidatePod(pod *corev1.Pod, mckubes []*mcv1.McKube) (warnings []string, err error) {
	list, err := bind(pod, mckubes)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return withoutMcKube(pod)
	}
	if _, err := nodeOf(list); err != nil {
		return nil, err
	}
	return nil, contradictions(pod, list)
}

// ValidatePodUpdate holds settings that were changed on an existing pod against the McKubes that govern it.
// Where two want one container the older governs, as it does for the controller, which writes these
// annotations when a McKube comes later or changes.
func ValidatePodUpdate(pod *corev1.Pod, mckubes []*mcv1.McKube) error {
	list, _ := bind(pod, mckubes) // what could not be bound governs nothing; its McKube's conditions say so
	if len(list) == 0 {
		_, err := withoutMcKube(pod)
		return err
	}
	return contradictions(pod, list)
}

// contradictions compares hand-written settings with those of the McKubes.
func contradictions(pod *corev1.Pod, list []binding) error {
	var problems []error
	wanted := settingsOf(list)
	for _, key := range settings {
		given, ok := pod.Annotations[key]
		if ok && given != wanted[key] {
			problems = append(problems, fmt.Errorf("metadata.annotations[%s] is %q; McKube %s says %q: leave the annotation out, or change the McKube",
				key, given, names(list), wanted[key]))
		}
	}
	return errors.Join(problems...)
}

func names(list []binding) string {
	all := make([]string, len(list))
	for i, b := range list {
		all[i] = b.mckube.Name
	}
	return strings.Join(all, ", ")
}

// withoutMcKube checks what is written on a pod that no McKube governs, yet.
func withoutMcKube(pod *corev1.Pod) ([]string, error) {
	given := 0
	for _, key := range settings {
		if _, ok := pod.Annotations[key]; ok {
			given++
		}
	}
	if given == 0 {
		return nil, nil
	}
	for _, c := range governable(pod) {
		if err := inRange(pod, c); err != nil {
			return nil, err
		}
	}
	return []string{"the annotations mckube.io/rt-* have no effect by themselves: no McKube with rtSettings governs this pod"}, nil
}

func governable(pod *corev1.Pod) []string {
	all := make([]string, len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		all[i] = pod.Spec.Containers[i].Name
	}
	return all
}

// inRange holds the settings written for a container against the bounds of a server.
func inRange(pod *corev1.Pod, container string) error {
	numbers := map[string]int64{}
	for _, key := range settings {
		value := mcv1.ParseValues(pod.Annotations[key], governable(pod)...)[container]
		if value == "" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n <= 0 {
			return fmt.Errorf("metadata.annotations[%s] is %q for container %s; it must be a number of microseconds above 0", key, value, container)
		}
		numbers[key] = n
	}
	period, low, hi := numbers[mcv1.AnnotationPeriod], numbers[mcv1.AnnotationRuntimeLow], numbers[mcv1.AnnotationRuntimeHi]
	if hi > 0 && low > hi {
		return fmt.Errorf("metadata.annotations[%s] is %d for container %s; it must be at most that of %s, %d",
			mcv1.AnnotationRuntimeLow, low, container, mcv1.AnnotationRuntimeHi, hi)
	}
	if period == 0 {
		return nil
	}
	if period < rt.MinPeriod || period > maxPeriod {
		return fmt.Errorf("metadata.annotations[%s] is %d for container %s; it must be from %d to %d microseconds",
			mcv1.AnnotationPeriod, period, container, rt.MinPeriod, maxPeriod)
	}
	if most := period * rt.MaxBudgetPercent / 100; max(low, hi) > most {
		return fmt.Errorf("metadata.annotations[%s] is %d for container %s; it must be at most %d, %d %% of the period",
			widest(low, hi), max(low, hi), container, most, rt.MaxBudgetPercent)
	}
	return nil
}

// maxPeriod is the longest period that a McKube may have, in microseconds.
const maxPeriod = 10_000_000

func widest(low, hi int64) string {
	if hi >= low {
		return mcv1.AnnotationRuntimeHi
	}
	return mcv1.AnnotationRuntimeLow
}
