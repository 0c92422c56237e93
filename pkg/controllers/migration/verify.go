package migration

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// read finds a pod that still exists under its UID and is not ending; nil when it does not.
func (m *migrate) read(ctx context.Context, named v1alpha1.ActionPod) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := m.API.Get(ctx, types.NamespacedName{Namespace: named.Namespace, Name: named.Name}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pod %s/%s: %w", named.Namespace, named.Name, err)
	case pod.UID != named.UID || pod.DeletionTimestamp != nil:
		return nil, nil
	}
	return pod, nil
}

// verify is why the pod must not be evicted, as things are now; empty: it may.
func (m *migrate) verify(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (veto string, err error) {
	spec, snapshot := task.Object.Spec, m.Store.Snapshot()
	view, known := snapshot.Pod(pod.UID)
	target, there := snapshot.NodeView(spec.TargetNode)
	switch {
	case spec.TargetNode == "" || spec.TargetNode == pod.Spec.NodeName:
		return fmt.Sprintf("targetNode: %q is not another node than %q", spec.TargetNode, pod.Spec.NodeName), nil
	case spec.Node != "" && pod.Spec.NodeName != spec.Node:
		return fmt.Sprintf("the pod is on node %q, not on %q", pod.Spec.NodeName, spec.Node), nil
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return "the pod has finished", nil
	case !known || len(view.Governed) == 0:
		return "no McKube governs the pod", nil
	case !there:
		return fmt.Sprintf("node %s has no real-time cores", spec.TargetNode), nil
	}
	if m := immovable(view); m != nil {
		return fmt.Sprintf("McKube %s says migration.policy Never", m.Name), nil
	}
	if accepted, why := snapshot.Accepts(target, view); !accepted {
		return fmt.Sprintf("node %s does not accept the pod: %s", spec.TargetNode, why), nil
	}
	if veto, err := m.orphan(ctx, pod); veto != "" || err != nil {
		return veto, err
	}
	return m.unplaced(ctx, task, pod)
}

// immovable is a McKube that does not let the pod migrate; nil: there is none.
func immovable(pod *state.PodView) *mcv1.McKube {
	for _, g := range pod.Governed {
		if asked := g.McKube.Spec.Migration; asked != nil && asked.Policy == mcv1.MigrationNever {
			return g.McKube
		}
	}
	return nil
}

// orphan is why nobody would make the pod again; empty: its owner would.
func (m *migrate) orphan(ctx context.Context, pod *corev1.Pod) (string, error) {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return "no controller owns the pod, so nothing would make it again", nil
	case owner.Kind == "DaemonSet" || owner.Kind == "Node":
		return fmt.Sprintf("%s %s makes its pod again on the same node", owner.Kind, owner.Name), nil
	}
	wants, err := m.wants(ctx, pod.Namespace, *owner)
	if err != nil || wants.any {
		return "", err
	}
	return wants.why, nil
}

// demand is what an owner wants of pods.
type demand struct {
	// any: it wants some; why not, if it does not.
	any bool
	why string
	// pods that it wants; -1: unknown.
	pods int
}

// wants asks the API server for what an owner wants. Of kinds that are not known, or that the controller may not read, it
// is believed that they want their pods.
func (m *migrate) wants(ctx context.Context, namespace string, owner metav1.OwnerReference) (demand, error) {
	object, replicas := scaled(owner)
	if object == nil {
		return demand{any: true, pods: -1}, nil
	}
	err := m.API.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, object)
	switch {
	case apierrors.IsNotFound(err) || err == nil && (object.GetUID() != owner.UID || object.GetDeletionTimestamp() != nil):
		return demand{why: fmt.Sprintf("%s %s, which made it, is gone", owner.Kind, owner.Name)}, nil
	case apierrors.IsForbidden(err):
		return demand{any: true, pods: -1}, nil
	case err != nil:
		return demand{}, fmt.Errorf("reading %s %s/%s: %w", owner.Kind, namespace, owner.Name, err)
	}
	n := 1 // the default
	if asked := replicas(); asked != nil {
		n = int(*asked)
	}
	if n == 0 {
		return demand{why: fmt.Sprintf("%s %s, which made it, wants no pods any longer", owner.Kind, owner.Name)}, nil
	}
	return demand{any: true, pods: n}, nil
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
