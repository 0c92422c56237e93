package migration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// confirm has a copy that was not proven before its source had to go prove itself: only the end of its time ends that.
func (m *migrate) confirm(task orchestration.Task, twin *corev1.Pod) (rules.Result, bool) {
	if task.Progress[progressEvidence] != "" || twin == nil || twin.DeletionTimestamp != nil { // which is told of elsewhere
		return rules.Result{}, true
	}
	evidence, why := m.prove(task, twin)
	switch name := twin.Namespace + "/" + twin.Name; {
	case restarts(twin) > 0:
		forfeit(task, fmt.Sprintf("pod %s, which went on with it, has ended", name))
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("pod %s went on on node %s in the source's place, and has begun anew", name, twin.Spec.NodeName)}, false
	case why != "" && m.ends(task):
		return rules.Result{Outcome: rules.Failed, Message: "the pod goes on with its state, the source is gone, and the time is over: " + why}, false
	case why != "":
		return rules.Result{Message: why}, false
	}
	task.Progress[progressEvidence] = evidence + runtimeSays
	return rules.Result{}, true
}

// restoreOwner has the former owner of a source that has gone by itself adopt the copy. It is done when the copy is adopted, or needs no
// owner. The owner may have created another pod meanwhile, and has one too many then.
func (m *migrate) restoreOwner(ctx context.Context, task orchestration.Task, twin *corev1.Pod) (rules.Result, bool, error) {
	by, err := m.formerOwner(ctx, task)
	if err != nil || by == nil || by.Kind != "ReplicaSet" || adopted(twin) {
		return rules.Result{}, err == nil, err
	}
	owner, err := m.replicaSet(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: twin.Namespace, OwnerReferences: []metav1.OwnerReference{*by}}})
	switch {
	case err != nil:
		return rules.Result{}, false, err
	case owner == nil:
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("pod %s/%s goes on on node %s, and ReplicaSet %s, which made its source, is gone: nobody owns it",
			twin.Namespace, twin.Name, twin.Spec.NodeName, by.Name)}, false, nil
	}
	result, err := m.adopt(ctx, twin, owner)
	return result, false, err
}

// formerOwner is the owner of the source according to the migration's status; it is nil if there is none.
func (m *migrate) formerOwner(ctx context.Context, task orchestration.Task) (*metav1.OwnerReference, error) {
	o := &v1alpha1.PodMigration{}
	key := types.NamespacedName{Namespace: task.Object.Spec.Pods[0].Namespace, Name: task.Progress[progressMigration]}
	if key.Name == "" {
		return nil, nil
	}
	if err := m.Client.Get(ctx, key, o); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading PodMigration %s: %w", key, err)
		}
		return nil, nil
	}
	if by := o.Status.Owner; by != nil {
		return &metav1.OwnerReference{APIVersion: by.APIVersion, Kind: by.Kind, Name: by.Name, UID: by.UID, Controller: ptr.To(true)}, nil
	}
	return nil, nil
}
