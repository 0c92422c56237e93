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

// annotationUncounted says, on the replacement of a Job's pod, that the Job is not to count yet what becomes of it. The Job has counted
// the source, and would count a replacement that cannot be restored as a second failure.
const annotationUncounted = v1alpha1.Group + "/uncounted"

// botched are the exit codes of containers that cannot be restored, as the runtime says, or are ended as others of their pod cannot.
var botched = []int32{128, 128 + 15, 128 + 9}

// counted has a Job count from now on what becomes of the replacement of one of its pods, if that was restored, or has ended by that.
// The Job controller removes the finalizer once it has counted. So counted adds it once, and removes the annotation with the same write.
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

// untold tells whether the agent may still report that a pod was restored: if the pod ends at once, its node's agent reports that after
// the end.
func (m *migrate) untold(task orchestration.Task, replacement *corev1.Pod) bool {
	return !finished(replacement) || replacement.Status.Phase == corev1.PodSucceeded && m.since(task, progressEnded) <= undecided
}

// comesTo waits until the replacement is restored. Until then its owner is kept from creating a pod beside it: a Job does not count it
// yet.
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

// unreplaced returns why a Job's pod does not go once it has ended, so that no replacement can take its name, or why the Job does not
// tolerate a failed restore. Where a Job counts the failures of each index (KEP-3850), the Job controller keeps the last failed pod of
// an index until there is another of that index. A rule by which the Job fails holds for pods that the Job does not count, too.
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
