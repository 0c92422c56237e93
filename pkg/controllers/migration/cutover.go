package migration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// completeCutOver removes the source, and has the copy settle down once the source has gone.
func (m *migrate) completeCutOver(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	cut := task.Progress[progressCut] != ""
	m.markCut(task)
	if twin == nil { // that it is gone only the API server may say
		var err error
		if twin, err = m.copied(ctx, m.API, task); err != nil {
			return rules.Result{}, err
		}
	}
	switch {
	case source == nil && !cut: // on record before the NodeCheckpoint goes, by which it would be known otherwise
		return rules.Result{Message: "the pod goes on on node " + task.Object.Spec.TargetNode + ", and the source is gone"}, nil
	case twin == nil || twin.DeletionTimestamp != nil:
		return m.copyLost(ctx, task, source, nc)
	case source != nil && m.ends(task):
		return m.succeed(ctx, task, source, twin)
	case source != nil:
		return m.dismiss(ctx, task, source, twin)
	}
	return m.settleDown(ctx, task, twin, nc)
}

// settleDown has the agents remove what they hold, and the copy prove itself, if there was no time for that before.
func (m *migrate) settleDown(ctx context.Context, task orchestration.Task, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	if result, done, err := m.restoreOwner(ctx, task, twin); !done || err != nil {
		return result, err
	}
	if ending, err := m.sourceEnding(ctx, task); err != nil || ending {
		return rules.Result{Message: "the pod goes on; waits until the source, which is deleted, has ended"}, err
	}
	if done, err := m.forget(ctx, nc); err != nil || !done && !m.ends(task) {
		return rules.Result{Message: "the pod goes on; waits until the agents have removed its state"}, err
	}
	if result, confirmed := m.confirm(task, twin); !confirmed {
		return result, nil
	}
	return m.succeed(ctx, task, nil, twin)
}

// sourceEnds is how long a process of the controller waits for the end of a deleted source. Its agent kills the stopped containers within
// a second or two after the kubelet has begun to end the pod. An agent that cannot do so leaves them to the pod's own grace period. The
// controller does not wait for that.
const sourceEnds = 15 * time.Second

// sourceEnding tells whether the source was deleted a short time ago and its containers have not ended. Its agent kills them as long as
// there is a NodeCheckpoint. Without time left for the action nothing is waited for.
func (m *migrate) sourceEnding(ctx context.Context, task orchestration.Task) (bool, error) {
	named := task.Object.Spec.Pods[0]
	pod := &corev1.Pod{}
	err := m.API.Get(ctx, types.NamespacedName{Namespace: named.Namespace, Name: named.Name}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading pod %s/%s: %w", named.Namespace, named.Name, err)
	case pod.UID != named.UID || pod.DeletionTimestamp == nil || finished(pod):
		return false, nil
	}
	return !m.ends(task) && m.watches.unchanged(task.Object.Name, "the source is deleted", m.Clock.Now()) < sourceEnds, nil
}

// dismiss removes the stopped source. Its ReplicaSet has one pod too many then. An ownerless source is evicted, as is one whose
// ReplicaSet would remove another pod instead for long.
func (m *migrate) dismiss(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod) (rules.Result, error) {
	why, err := m.outweighed(ctx, source)
	switch {
	case err != nil || why != "" && !adopted(twin) && !m.lingers(task):
		return rules.Result{Message: why}, err
	case metav1.GetControllerOf(source) == nil || why != "" && !adopted(twin):
		answer, err := m.evictStopped(ctx, task, source)
		if err != nil || answer.Refused() {
			return rules.Result{Message: "the source may not be evicted yet: " + answer.Why}, err
		}
		return rules.Result{Message: "the pod goes on; the source was evicted, and is waited for"}, nil
	case !adopted(twin):
		owner, err := m.replicaSet(ctx, source)
		if err != nil || owner == nil {
			return m.succeedUnless(ctx, err, task, source, twin)
		}
		if err := m.yield(ctx, source); err != nil {
			return rules.Result{}, err
		}
		return m.adopt(ctx, twin, owner)
	}
	return m.succeed(ctx, task, source, twin)
}

func (m *migrate) succeedUnless(ctx context.Context, err error, task orchestration.Task, source, twin *corev1.Pod) (rules.Result, error) {
	if err != nil {
		return rules.Result{}, err
	}
	return m.succeed(ctx, task, source, twin)
}

// copyLost ends a migration whose copy was deleted after the source was released. The agents remove what they hold. The source is
// stopped; if it has an owner, the controller evicts it, so that the owner recreates it.
func (m *migrate) copyLost(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	forfeit(task, "the pod in its place was taken away")
	said := ""
	if source != nil {
		said = fmt.Sprintf("; the source is stopped on node %s", source.Spec.NodeName)
		if metav1.GetControllerOf(source) != nil {
			if answer, err := m.evictStopped(ctx, task, source); err != nil || answer.Refused() && !m.ends(task) {
				return rules.Result{Message: "the pod in its place was taken away; the source, which is stopped, may not be evicted yet: " + answer.Why}, err
			}
			said = "; the source, which was stopped, is evicted, so that its owner makes it again"
		}
	}
	if done, err := m.forget(ctx, nc); err != nil || !done && !m.ends(task) {
		return rules.Result{Message: "the pod in its place was taken away; waits until the agents have removed its state"}, err
	}
	return rules.Result{Outcome: rules.Failed, Message: "the pod in its place was taken away after the source was released" + said}, nil
}
