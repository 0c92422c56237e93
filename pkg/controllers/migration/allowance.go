package migration

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

const (
	// patienceForRoom is how long a migration may take beside what follows: for a PodDisruptionBudget, for a pod to be made, for its image.
	patienceForRoom = 5 * time.Minute
	// perGiB is how long the state of a pod may take for each GiB, to be written and again to be carried, and leastForState for
	// how long at least, each.
	perGiB        = 150 * time.Second
	leastForState = 120 * time.Second
	gib           = 1 << 30
)

// Allowance is how long a migration may take: what it takes to place a pod, the time that the source may take to end, and by its size the
// time for its state.
func Allowance(strategy v1alpha1.MigrationStrategy, grace time.Duration, bytes int64) time.Duration {
	out := patienceForRoom + grace
	if strategy == v1alpha1.StrategyCheckpoint {
		each := max(leastForState, time.Duration(float64(perGiB)*float64(bytes)/gib))
		out += 2 * each
	}
	return min(out, 24*time.Hour).Truncate(time.Millisecond)
}

// allowed is that, unless the PodMigration says it.
func (r *Reconciler) allowed(ctx context.Context, o *v1alpha1.PodMigration) time.Duration {
	if t := o.Spec.Timeout; t != nil {
		return t.Truncate(time.Millisecond)
	}
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.PodName}, pod); err != nil {
		return Allowance(o.Status.Strategy, 0, 0)
	}
	return needed(o.Status.Strategy, pod)
}

// needed is how long a pod may take to go by a strategy.
func needed(by v1alpha1.MigrationStrategy, pod *corev1.Pod) time.Duration {
	grace := time.Duration(0)
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	return Allowance(by, grace, memory(pod))
}

// memory is how much memory a pod may have: its limits, and where it has none its requests.
func memory(pod *corev1.Pod) int64 {
	sum := int64(0)
	for i := range pod.Spec.Containers {
		res := pod.Spec.Containers[i].Resources
		if limit, ok := res.Limits[corev1.ResourceMemory]; ok {
			sum += limit.Value()
			continue
		}
		request := res.Requests[corev1.ResourceMemory]
		sum += request.Value()
	}
	return sum
}
