package rtruntime

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

const (
	// preemptionRest is how long nothing is tried again for a pod after that was in vain, so that those
	// held back have their turn.
	preemptionRest = 30 * time.Second
	// preemptionRestMost is the longest such rest.
	preemptionRestMost = 10 * time.Minute
)

// restAfter doubles the rest with every plan that was in vain: a pod whose room others take each time must not cost
// other pods their place for ever.
func restAfter(inVain int) time.Duration {
	rest := preemptionRest
	for i := 1; i < inVain && rest < preemptionRestMost; i++ {
		rest *= 2
	}
	return min(rest, preemptionRestMost)
}

// restText is how a rest is kept on its pod: a controller that starts again and again would else evict for it each time.
func restText(inVain int, until time.Time) string {
	return fmt.Sprintf("%d until %s", inVain, until.UTC().Format(time.RFC3339))
}

// restOf reads it. What cannot be read says nothing, and no rest is longer than any is.
func restOf(pod *corev1.Pod, now time.Time) (inVain int, until time.Time) {
	var text string
	if _, err := fmt.Sscanf(pod.Annotations[mcv1.AnnotationPreemptionRest], "%d until %s", &inVain, &text); err != nil || inVain < 1 {
		return 0, time.Time{}
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, time.Time{}
	}
	if most := now.Add(preemptionRestMost); until.After(most) {
		until = most
	}
	return inVain, until
}
