package migration

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// orphan is why nobody would make the pod again; empty: its owner would.
func (d Dependencies) orphan(ctx context.Context, pod *corev1.Pod) (string, error) {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return "no controller owns the pod, so nothing would make it again", nil
	case owner.Kind == "DaemonSet" || owner.Kind == "Node":
		return fmt.Sprintf("%s %s makes its pod again on the same node", owner.Kind, owner.Name), nil
	}
	wants, err := d.wants(ctx, pod.Namespace, *owner)
	switch {
	case err != nil:
		return "", err
	case !wants.any:
		return wants.why, nil
	}
	return wants.fragile, nil
}

// demand is what an owner wants of pods.
type demand struct {
	// any: it wants some; why not, if it does not.
	any bool
	why string
	// pods that it wants; -1: unknown.
	pods int
	// fragile is why it would want none any longer once one is evicted.
	fragile string
}

// wants asks the API server for what an owner wants. Of kinds that are not known, or that the controller may not read, it
// is believed that they want their pods.
func (d Dependencies) wants(ctx context.Context, namespace string, owner metav1.OwnerReference) (demand, error) {
	if owner.APIVersion == "batch/v1" && owner.Kind == "Job" {
		return d.wantsOfJob(ctx, namespace, owner)
	}
	object, replicas := scaled(owner)
	if object == nil {
		return demand{any: true, pods: -1}, nil
	}
	err := d.API.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, object)
	switch {
	case apierrors.IsNotFound(err) || err == nil && (object.GetUID() != owner.UID || object.GetDeletionTimestamp() != nil):
		return gone(owner), nil
	case apierrors.IsForbidden(err):
		return demand{any: true, pods: -1}, nil
	case err != nil:
		return demand{}, fmt.Errorf("reading %s %s/%s: %w", owner.Kind, namespace, owner.Name, err)
	}
	return demanded(owner, replicas()), nil
}

// gone is what an owner wants that is not there any longer.
func gone(owner metav1.OwnerReference) demand {
	return demand{why: fmt.Sprintf("%s %s, which made it, is gone", owner.Kind, owner.Name)}
}

// demanded is what an owner wants that says so many replicas; nil: the default.
func demanded(owner metav1.OwnerReference, replicas *int32) demand {
	n := 1
	if replicas != nil {
		n = int(*replicas)
	}
	if n == 0 {
		return demand{why: fmt.Sprintf("%s %s, which made it, wants no pods any longer", owner.Kind, owner.Name)}
	}
	return demand{any: true, pods: n}
}

// scaled is an empty object of the owner's kind, if that says how many pods it wants, and where it does.
func scaled(owner metav1.OwnerReference) (client.Object, func() *int32) {
	switch owner.APIVersion + " " + owner.Kind {
	case "apps/v1 ReplicaSet":
		o := &appsv1.ReplicaSet{}
		return o, func() *int32 { return o.Spec.Replicas }
	case "apps/v1 StatefulSet":
		o := &appsv1.StatefulSet{}
		return o, func() *int32 { return o.Spec.Replicas }
	case "v1 ReplicationController":
		o := &corev1.ReplicationController{}
		return o, func() *int32 { return o.Spec.Replicas }
	}
	return nil, nil
}

// wantsOfJob is what a Job wants: a pod until it is complete or has failed, which it may by counting the one that goes.
func (d Dependencies) wantsOfJob(ctx context.Context, namespace string, owner metav1.OwnerReference) (demand, error) {
	job := &batchv1.Job{}
	err := d.API.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, job)
	switch {
	case apierrors.IsNotFound(err) || err == nil && (job.UID != owner.UID || job.DeletionTimestamp != nil):
		return demand{why: fmt.Sprintf("Job %s, which made it, is gone", owner.Name)}, nil
	case apierrors.IsForbidden(err):
		return demand{any: true, pods: -1}, nil
	case err != nil:
		return demand{}, fmt.Errorf("reading Job %s/%s: %w", namespace, owner.Name, err)
	case job.Spec.Suspend != nil && *job.Spec.Suspend || job.Status.CompletionTime != nil:
		return demand{why: fmt.Sprintf("Job %s, which made it, wants no pods any longer", owner.Name)}, nil
	case failing(job):
		return demand{why: fmt.Sprintf("Job %s, which made it, has failed", owner.Name)}, nil
	case !bears(job):
		why := fmt.Sprintf("Job %s would count the pod as failed, and fail: let its podFailurePolicy ignore pods with condition DisruptionTarget", owner.Name)
		return demand{any: true, pods: -1, fragile: why}, nil
	}
	return demand{any: true, pods: -1}, nil
}

// failing tells whether a Job makes no pods any longer, as it has failed or is about to.
func failing(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget) && c.Status == corev1.ConditionTrue
	})
}

// bears tells whether a Job goes on when one of its pods is evicted.
func bears(job *batchv1.Job) bool {
	if p := job.Spec.PodFailurePolicy; p != nil {
		for _, rule := range p.Rules {
			for _, c := range rule.OnPodConditions {
				if rule.Action == batchv1.PodFailurePolicyActionIgnore && c.Type == corev1.DisruptionTarget {
					return true
				}
			}
		}
	}
	limit := int32(6) // the API server's default
	if job.Spec.BackoffLimit != nil {
		limit = *job.Spec.BackoffLimit
	}
	return job.Status.Failed < limit
}
