package migration

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// resting is how long after a pod that its node has refused, or that is gone before anything of it was begun, the next is made.
	resting = 30 * time.Second
	// annotationBorne is, on a NodeCheckpoint, when a pod was last made of a state that is kept after its action, as RFC 3339.
	annotationBorne = v1alpha1.Group + "/borne"
	// reasonUnknown is what a kubelet says of a container that it does not find, also of one that it has never made.
	reasonUnknown = "ContainerStatusUnknown"
)

// rejected tells whether a pod has come to nothing before any container of it was begun, as a kubelet has it that does not admit it (NodeShutdown, OutOfcpu, TopologyAffinityError, Evicted):
// its state is as it was.
func rejected(nc *v1alpha1.NodeCheckpoint, pod *corev1.Pod) bool {
	return pod != nil && pod.Status.Phase == corev1.PodFailed && !everBegun(pod) && !everRestored(nc)
}

// everBegun tells whether a node has ever begun a container of a pod that it has taken: what keeps it from that, as a volume or a plugin of its, may pass.
func everBegun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.ContainerID != "" || s.State.Running != nil || hasRun(s.State.Terminated) || hasRun(s.LastTerminationState.Terminated)
	})
}

func hasRun(t *corev1.ContainerStateTerminated) bool {
	return t != nil && (t.Reason != reasonUnknown || t.ContainerID != "")
}

// everRestored tells whether the target's runtime has ever made a container of the state.
func everRestored(nc *v1alpha1.NodeCheckpoint) bool {
	return nc != nil && nc.Status.Target != nil && slices.ContainsFunc(nc.Status.Target.Archives, func(a v1alpha1.CheckpointArchive) bool { return a.Restored != "" })
}

// unbegun tells whether a pod is to be made in the source's place, be it again, as nothing of one was ever begun. A StatefulSet's controller deletes one that its node has refused, at
// once, so that it may be seen no longer; one that somebody deletes as its node has it ends before it goes, and is seen.
func unbegun(task orchestration.Task, l legacy) bool {
	return task.Progress[progressBorne] == "" && !everRestored(l.nc) && (l.heir == nil || rejected(l.nc, l.heir))
}

// bringForth has the pod in the source's place be made, once more after a rest. When the time is over its state is kept.
func (m *migrate) bringForth(ctx context.Context, task orchestration.Task, l legacy) (rules.Result, error) {
	if l.heir == nil && task.Progress[progressTwin] == "" {
		return m.makeHeir(ctx, task, l.nc)
	}
	why := "the pod in its place was taken away before anything of it was begun"
	if l.heir != nil {
		why = fmt.Sprintf("node %s has refused pod %s/%s: %s: %s", l.heir.Spec.NodeName, l.heir.Namespace, l.heir.Name, l.heir.Status.Reason, l.heir.Status.Message)
	}
	switch {
	case m.ends(task):
		return m.leave(l, "the time is over: "+why), nil
	case m.since(task, progressRefusal) < resting:
	case l.heir != nil:
		if err := m.clear(ctx, l.heir); err != nil {
			return rules.Result{}, err
		}
	default:
		delete(task.Progress, progressRefusal)
		return m.makeHeir(ctx, task, l.nc)
	}
	return rules.Result{Message: why + "; it is made again"}, nil
}

// clear takes away a pod that its node has refused.
func (m *migrate) clear(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	if err := m.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(briefly)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s/%s, which its node has refused: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// rests tells whether a pod was made of a kept state just now.
func (m *migrate) rests(nc *v1alpha1.NodeCheckpoint) bool {
	at, err := time.Parse(time.RFC3339, nc.Annotations[annotationBorne])
	return err == nil && m.Clock.Now().Sub(at) < resting
}

// borne notes that one was.
func (m *migrate) borne(ctx context.Context, nc *v1alpha1.NodeCheckpoint) error {
	after := nc.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, annotationBorne, m.Clock.Now().UTC().Format(time.RFC3339))
	if err := m.Client.Patch(ctx, after, client.MergeFrom(nc)); err != nil {
		return fmt.Errorf("noting on NodeCheckpoint %s that a pod was made: %w", nc.Name, err)
	}
	*nc = *after
	return nil
}
