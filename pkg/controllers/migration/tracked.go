package migration

import (
	"cmp"
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// annotationUncounted is, on a pod in the place of a Job's, that the Job is not to count yet what becomes of it: it has counted its source, and would count one
// that cannot be restored as a second failure.
const annotationUncounted = v1alpha1.Group + "/uncounted"

// botched are the exit codes of containers that cannot be restored, as the runtime says, or are ended as others of their pod cannot.
var botched = []int32{128, 128 + 15, 128 + 9}

// counted has a Job count from now on what becomes of the pod in the place of one of its, if that goes on with its state, or has come to its end by it. Its
// controller takes the finalizer off once it has counted, so that it is put on once, with what says that it is to be.
func (m *migrate) counted(ctx context.Context, nc *v1alpha1.NodeCheckpoint, replacement *corev1.Pod) error {
	if nc == nil || replacement == nil || replacement.DeletionTimestamp != nil || replacement.Annotations[annotationUncounted] == "" ||
		unrestored(nc, replacement) != "" && replacement.Status.Phase != corev1.PodSucceeded {
		return nil
	}
	after := replacement.DeepCopy()
	delete(after.Annotations, annotationUncounted)
	controllerutil.AddFinalizer(after, batchv1.JobTrackingFinalizer)
	if err := m.Client.Patch(ctx, after, client.MergeFromWithOptions(replacement, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("having pod %s/%s counted: %w", replacement.Namespace, replacement.Name, err)
	}
	*replacement = *after
	return nil
}

// untold tells whether it may still be said of a pod that it goes on with the state: of one that comes to its end at once its node's agent says so after that.
func (m *migrate) untold(task orchestration.Task, replacement *corev1.Pod) bool {
	return !finished(replacement) || replacement.Status.Phase == corev1.PodSucceeded && m.since(task, progressEnded) <= undecided
}

// comesTo waits until the pod goes on with the state. Until then its owner is kept from making one beside it, as a Job does not count yet what becomes of it.
func (m *migrate) comesTo(ctx context.Context, task orchestration.Task, l handover, why string) (rules.Result, error) {
	if err := m.enter(ctx, task, v1alpha1.MigrationRestoring, arriving(l.replacement)); err != nil { // it takes its room itself from now on
		return rules.Result{}, err
	}
	task.Progress[progressHanded] = cmp.Or(task.Progress[progressHanded], task.Progress[state.ProgressReserved])
	if err := m.hand(task); err != nil { // its claims have its cores
		return rules.Result{}, err
	}
	if _, unproven := m.prove(task, l.replacement); unproven != "" {
		why = unproven
	}
	if fails := waitsFor(l.replacement, passingly); fails != "" {
		why = fails
	}
	return m.unsettled(ctx, task, l, rules.Result{Message: why})
}

// unreplaced is why a Job's pod does not go once it has ended, so that none can take its name, or the Job does not bear that one cannot be restored. The Job
// controller keeps the last one of an index that has failed until there is another of that index, where it counts the failures of each (KEP-3850), and a rule by
// which the Job fails holds for pods, too, that it does not count.
func (d Dependencies) unreplaced(ctx context.Context, q question) (string, error) {
	by := metav1.GetControllerOf(q.pod)
	if q.planned || !isJob(by) {
		return "", nil
	}
	job, err := d.job(ctx, q.pod.Namespace, *by)
	if job == nil || err != nil {
		return "", err
	}
	if job.Spec.BackoffLimitPerIndex != nil {
		return fmt.Sprintf("Job %s has backoffLimitPerIndex, so its pods stay when they have ended until there is another of their index, which would have to have their name", job.Name), nil
	}
	for _, code := range botched {
		if what, where := verdict(job, endedAs(q.pod, code)); what == batchv1.PodFailurePolicyActionFailJob {
			return fmt.Sprintf("Job %s would fail if its state could not be restored: rule %d of its podFailurePolicy says so of exit code %d", job.Name, where, code), nil
		}
	}
	return "", nil
}
