package migration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// wantsOfJob is what a Job wants: a pod until the Job, or the pod's index, is complete or has failed. Counting the evicted pod may
// complete or fail it.
func (d Dependencies) wantsOfJob(ctx context.Context, owner metav1.OwnerReference, pod *corev1.Pod, evicted bool) (demand, error) {
	job := &batchv1.Job{}
	err := d.API.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, job)
	switch {
	case apierrors.IsNotFound(err) || err == nil && (job.UID != owner.UID || job.DeletionTimestamp != nil):
		return demand{why: fmt.Sprintf("Job %s, which made it, is gone", owner.Name)}, nil
	case apierrors.IsForbidden(err):
		return demand{any: true, pods: -1}, nil
	case err != nil:
		return demand{}, fmt.Errorf("reading Job %s/%s: %w", pod.Namespace, owner.Name, err)
	case ptr.Deref(job.Spec.Suspend, false) || ptr.Deref(job.Spec.Parallelism, 1) == 0 || job.Status.CompletionTime != nil:
		return demand{why: fmt.Sprintf("Job %s, which made it, wants no pods any longer", owner.Name)}, nil
	case failing(job):
		return demand{why: fmt.Sprintf("Job %s, which made it, has failed", owner.Name)}, nil
	}
	why, fragile := concluded(job, pod), ""
	if why == "" && !evicted {
		fragile = Fragile(job, pod, 0)
	}
	return demand{any: why == "", why: why, pods: -1, fragile: fragile}, nil
}

// concluded is why an Indexed Job does not make a pod again, though it makes others; empty: it does.
func concluded(job *batchv1.Job, pod *corev1.Pod) string {
	index, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	switch {
	case err != nil:
		return ""
	case job.Spec.Completions != nil && index >= int(*job.Spec.Completions):
		return fmt.Sprintf("Job %s, which made it, wants no pod of index %d any longer", job.Name, index)
	case within(job.Status.CompletedIndexes, index):
		return fmt.Sprintf("index %d of Job %s, which made it, is complete", index, job.Name)
	case within(ptr.Deref(job.Status.FailedIndexes, ""), index):
		return fmt.Sprintf("index %d of Job %s, which made it, has failed", index, job.Name)
	}
	return ""
}

// within tells whether an index is of a list as a Job's status has them: 1,3-5,7.
func within(list string, index int) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(interval string) bool {
		first, last, several := strings.Cut(interval, "-")
		if !several {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		return err == nil && err2 == nil && from <= index && index <= to
	})
}

// failing tells whether a Job makes no pods any longer, as it has failed or is about to.
func failing(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget) && c.Status == corev1.ConditionTrue
	})
}

// codes are how those end that are evicted: without an exit code that counts as failed, by SIGTERM, or so.
var codes = []int32{0, 128 + 15, 128 + 9}

// Fragile returns why a Job, or the pod's index of it, would fail if the pod was evicted, after as many others as others says that the
// Job's status does not show yet. It is empty if the Job would recreate the pod. Fragile decides as the Job controller does
// (pkg/controller/job of Kubernetes), however the pod's containers end.
func Fragile(job *batchv1.Job, pod *corev1.Pod, others int32) string {
	for _, code := range codes {
		what, where := verdict(job, evictedAs(pod, code))
		switch {
		case what == batchv1.PodFailurePolicyActionFailJob:
			return fmt.Sprintf("Job %s fails if the pod is evicted: rule %d of its podFailurePolicy says so", job.Name, where)
		case what == batchv1.PodFailurePolicyActionFailIndex:
			return fmt.Sprintf("the pod's index of Job %s fails if the pod is evicted: rule %d of its podFailurePolicy says so", job.Name, where)
		case what == batchv1.PodFailurePolicyActionIgnore:
			continue
		case job.Spec.BackoffLimitPerIndex != nil && failuresOf(pod) >= *job.Spec.BackoffLimitPerIndex:
			return fmt.Sprintf("Job %s would count the pod as failed, and its index would fail: let its podFailurePolicy ignore pods with condition DisruptionTarget", job.Name)
		case failuresOfAll(job)+others >= limitOf(job):
			return fmt.Sprintf("Job %s would count the pod as failed, and fail: let its podFailurePolicy ignore pods with condition DisruptionTarget", job.Name)
		}
	}
	return ""
}

// evictedAs is the status that a pod shows to its Job after its eviction, if its containers that still run end with that exit code.
func evictedAs(pod *corev1.Pod, code int32) *corev1.PodStatus {
	s := endedAs(pod, code)
	s.Conditions = append(slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }),
		corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
	return s
}

// endedAs is that for a pod that ends, whatever by.
func endedAs(pod *corev1.Pod, code int32) *corev1.PodStatus {
	s := pod.Status.DeepCopy()
	for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
		for i := range list {
			if list[i].State.Terminated == nil {
				list[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
			}
		}
	}
	return s
}

// verdict is what the first rule that matches a pod has its Job do, and which that is; Count if none does.
func verdict(job *batchv1.Job, s *corev1.PodStatus) (batchv1.PodFailurePolicyAction, int) {
	if p := job.Spec.PodFailurePolicy; p != nil {
		for i, rule := range p.Rules {
			if rule.OnExitCodes != nil && endedBy(rule.OnExitCodes, s) || rule.OnExitCodes == nil && marked(rule.OnPodConditions, s) {
				return rule.Action, i
			}
		}
	}
	return batchv1.PodFailurePolicyActionCount, -1
}

// endedBy tells whether a container has ended as a rule says.
func endedBy(rule *batchv1.PodFailurePolicyOnExitCodesRequirement, s *corev1.PodStatus) bool {
	return slices.ContainsFunc(slices.Concat(s.ContainerStatuses, s.InitContainerStatuses), func(c corev1.ContainerStatus) bool {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != c.Name {
			return false
		}
		listed := slices.Contains(rule.Values, c.State.Terminated.ExitCode)
		return rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && listed || rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !listed
	})
}

// marked tells whether a pod has one of the conditions that a rule names.
func marked(rule []batchv1.PodFailurePolicyOnPodConditionsPattern, s *corev1.PodStatus) bool {
	return slices.ContainsFunc(rule, func(p batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
		return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == p.Type && c.Status == p.Status })
	})
}

// failuresOf is how often the pod's index has failed before it.
func failuresOf(pod *corev1.Pod) int32 {
	n, err := strconv.ParseInt(pod.Annotations[batchv1.JobIndexFailureCountAnnotation], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}

// failuresOfAll is how many pods of a Job have failed, with those that it has not counted yet.
func failuresOfAll(job *batchv1.Job) int32 {
	n := job.Status.Failed
	if u := job.Status.UncountedTerminatedPods; u != nil {
		n += int32(len(u.Failed)) //nolint:gosec // the API server bounds it
	}
	return n
}

// limitOf is how many pods of a Job may fail.
func limitOf(job *batchv1.Job) int32 {
	if job.Spec.BackoffLimit != nil {
		return *job.Spec.BackoffLimit
	}
	return 6 // the API server's default
}
