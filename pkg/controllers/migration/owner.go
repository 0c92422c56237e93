package migration

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// orphan returns why no owner would recreate the pod; it is empty if its owner would.
func (d Dependencies) orphan(ctx context.Context, pod *corev1.Pod) (string, error) {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return "no controller owns the pod, so nothing would make it again", nil
	case owner.Kind == "DaemonSet" || owner.Kind == "Node":
		return fmt.Sprintf("%s %s makes its pod again on the same node", owner.Kind, owner.Name), nil
	}
	wants, err := d.wants(ctx, *owner, pod, finished(pod))
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
	// outdated is why it would make the pod of another template; it may keep one that is there.
	outdated string
}

// wants asks the API server for what an owner wants. Of kinds that are not known, or that the controller may not read, it
// is believed that they want their pods. The pod is to be evicted, or was.
func (d Dependencies) wants(ctx context.Context, owner metav1.OwnerReference, pod *corev1.Pod, evicted bool) (demand, error) {
	if isJob(&owner) {
		return d.wantsOfJob(ctx, owner, pod, evicted)
	}
	object, replicas := scaled(owner)
	if object == nil {
		return demand{any: true, pods: -1}, nil
	}
	err := d.API.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, object)
	switch {
	case apierrors.IsNotFound(err) || err == nil && (object.GetUID() != owner.UID || object.GetDeletionTimestamp() != nil):
		return gone(owner), nil
	case apierrors.IsForbidden(err):
		return demand{any: true, pods: -1}, nil
	case err != nil:
		return demand{}, fmt.Errorf("reading %s %s/%s: %w", owner.Kind, pod.Namespace, owner.Name, err)
	}
	wants := demanded(owner, replicas())
	set, ok := object.(*appsv1.StatefulSet)
	switch {
	case !ok || !wants.any:
	case beyond(set, pod):
		return demand{why: fmt.Sprintf("StatefulSet %s, which made it, wants no pod of its number any longer", set.Name)}, nil
	case rolled(set, pod):
		wants.outdated = fmt.Sprintf("StatefulSet %s, which made it, is given another template, revision %s, and replaces the pods of the former one", set.Name, set.Status.UpdateRevision)
	}
	return wants, nil
}

// beyond tells whether a StatefulSet wants none of a pod's number: its controller deletes such pods.
func beyond(set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	n, numbered := number(set, pod)
	return numbered && (n < 0 || n >= int(ptr.Deref(set.Spec.Replicas, 1)))
}

// rolled tells whether the StatefulSet controller replaces pods of the pod's number that are not of the update revision, and the pod is
// not. The StatefulSet controller deletes such a pod at some time, and creates none of its revision any longer.
func rolled(set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	by, to := set.Spec.UpdateStrategy, set.Status.UpdateRevision
	if by.Type != appsv1.RollingUpdateStatefulSetStrategyType || to == "" || pod.Labels[appsv1.ControllerRevisionHashLabelKey] == to {
		return false
	}
	n, numbered := number(set, pod)
	return numbered && (by.RollingUpdate == nil || n >= int(ptr.Deref(by.RollingUpdate.Partition, 0)))
}

// number is which pod of a StatefulSet one is, from 0 on, by what its name ends in.
func number(set *appsv1.StatefulSet, pod *corev1.Pod) (int, bool) {
	n, err := strconv.Atoi(pod.Name[strings.LastIndex(pod.Name, "-")+1:])
	if o := set.Spec.Ordinals; o != nil {
		n -= int(o.Start)
	}
	return n, err == nil
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
