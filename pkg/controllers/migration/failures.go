package migration

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/eviction"
)

// isJob tells whether a Job makes a pod.
func isJob(by *metav1.OwnerReference) bool {
	return by != nil && by.Kind == "Job" && by.APIVersion == batchv1.SchemeGroupVersion.String()
}

// unborne tells whether the pod's Job tolerates its eviction, as things are now. The verdict is Never if the Job would fail. It is Later
// if the Job would fail together with other pods that it has not counted yet: those that terminate, and those whose UIDs are in going,
// which may stay. The pods are read before the Job. A pod that the Job counts in between is taken for two, and for one when the question
// is repeated.
func (d Dependencies) unborne(ctx context.Context, pod *corev1.Pod, going map[types.UID]bool) (eviction.Answer, error) {
	by := metav1.GetControllerOf(pod)
	if !isJob(by) || finished(pod) { // what has ended is counted however it goes
		return eviction.Answer{}, nil
	}
	list := &corev1.PodList{}
	if err := d.API.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return eviction.Answer{}, fmt.Errorf("listing pods of namespace %s: %w", pod.Namespace, err)
	}
	job, err := d.job(ctx, pod.Namespace, *by)
	if job == nil || err != nil {
		return eviction.Answer{}, err
	}
	if why := Fragile(job, pod, 0); why != "" {
		return eviction.Answer{Verdict: eviction.Never, Why: why}, nil
	}
	others := uncounted(job, list.Items, func(p *corev1.Pod) bool { return going[p.UID] && p.UID != pod.UID })
	if Fragile(job, pod, others) == "" {
		return eviction.Answer{}, nil
	}
	return eviction.Answer{
		Verdict: eviction.Later,
		Why:     fmt.Sprintf("Job %s may count %d more pods as failed, and does not show %d others yet, which end or are on the move", job.Name, limitOf(job)-failuresOfAll(job), others),
	}, nil
}

// job is a pod's Job; nil: it is gone, or may not be read, which others tell of.
func (d Dependencies) job(ctx context.Context, namespace string, by metav1.OwnerReference) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	switch err := d.API.Get(ctx, types.NamespacedName{Namespace: namespace, Name: by.Name}, job); {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || err == nil && job.UID != by.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Job %s/%s: %w", namespace, by.Name, err)
	}
	return job, nil
}

// uncounted is how many pods of a Job fail that its status does not show: they have failed, terminate, or are about to be evicted. The
// Job controller removes its finalizer from a pod once its status shows the pod.
func uncounted(job *batchv1.Job, pods []corev1.Pod, going func(*corev1.Pod) bool) (n int32) {
	for i := range pods {
		p := &pods[i]
		ends := p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed
		switch u := job.Status.UncountedTerminatedPods; {
		case !metav1.IsControlledBy(p, job) || p.Status.Phase == corev1.PodSucceeded || u != nil && slices.Contains(u.Failed, p.UID):
		case ends && slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) && counts(job, p, endedAs), !ends && going(p) && counts(job, p, evictedAs):
			n++
		}
	}
	return n
}

// counts tells whether a Job counts a pod of it as failed, or fails by it, in one of the ways that its containers may end.
func counts(job *batchv1.Job, pod *corev1.Pod, as func(*corev1.Pod, int32) *corev1.PodStatus) bool {
	return slices.ContainsFunc(codes, func(code int32) bool {
		what, _ := verdict(job, as(pod, code))
		return what != batchv1.PodFailurePolicyActionIgnore
	})
}

// crowded is why a migration waits before it begins: its Job may not bear it beside those that are under way. Empty: it does.
func (r *Reconciler) crowded(ctx context.Context, q question) (string, error) {
	going := map[types.UID]bool{}
	for i := range q.others {
		if o := &q.others[i]; o.UID != q.object.UID && !o.Status.Phase.Over() && o.Status.Strategy != "" && !adrift(o) && o.Status.Source != nil {
			going[o.Status.Source.PodUID] = true
		}
	}
	answer, err := r.unborne(ctx, q.pod, going)
	if answer.Verdict != eviction.Later {
		return "", err
	}
	return answer.Why, err
}
