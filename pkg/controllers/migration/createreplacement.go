package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

const (
	// resting is how long after a pod the next is made, where that one has come to nothing before anything of it was begun.
	resting = 30 * time.Second
	// annotationRequested is, on a NodeCheckpoint, when a pod was last asked for of a state that is kept after its action, as RFC 3339.
	annotationRequested = v1alpha1.Group + "/borne"
	// annotationBegun is, on a NodeCheckpoint, the UID of a pod of which a container was seen started, whatever its kubelet reports
	// later.
	annotationBegun = v1alpha1.Group + "/begun"
	// reasonUnknown is what a kubelet says of a container that it does not find, also of one that it has never made.
	reasonUnknown = "ContainerStatusUnknown"
)

// everBegun tells whether a node has ever started a container of a pod that it took. What keeps the node from that, such as a volume or
// a plugin, may pass.
func everBegun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		ended := s.State.Terminated
		return s.ContainerID != "" || s.RestartCount > 0 || s.State.Running != nil || s.LastTerminationState.Terminated != nil || ended != nil && (ended.Reason != reasonUnknown || ended.ContainerID != "")
	})
}

// noteBegun records durably that a container of the replacement was started: a restarted kubelet may write a status without containers,
// and the pod may be gone. What the runtime has said of its containers is on record anyway.
func (m *migrate) noteBegun(ctx context.Context, nc *v1alpha1.NodeCheckpoint, replacement *corev1.Pod) error {
	if nc == nil || replacement == nil || !everBegun(replacement) || nc.Annotations[annotationBegun] != "" || everRestored(nc) {
		return nil
	}
	return m.note(ctx, nc, annotationBegun, string(replacement.UID))
}

// everRestored tells whether the target's runtime has ever made a container of the state.
func everRestored(nc *v1alpha1.NodeCheckpoint) bool {
	return nc != nil && nc.Status.Target != nil && slices.ContainsFunc(nc.Status.Target.Archives, func(a v1alpha1.CheckpointArchive) bool { return a.Restored != "" })
}

// notStarted tells whether the controller is to create a replacement, the first or a further one: no container of one was ever started,
// so the state is unchanged. Either there is no replacement, or it comes to nothing. Its kubelet does not admit it (NodeShutdown,
// OutOfcpu, TopologyAffinityError, Evicted), or a drain or a preemption deletes it. The StatefulSet controller deletes a pod that its
// node has rejected at once, so the controller may never see it. A pod that is deleted while its node has it ends before it goes, and is
// seen.
func notStarted(task orchestration.Task, l handover) bool {
	if task.Progress[progressRestored] != "" || l.nc == nil || l.nc.Annotations[annotationBegun] != "" || everRestored(l.nc) {
		return false
	}
	return l.replacement == nil || !everBegun(l.replacement) && (l.replacement.Status.Phase == corev1.PodFailed || l.replacement.DeletionTimestamp != nil)
}

// createReplacement creates the replacement, and recreates it if one has come to nothing.
func (m *migrate) createReplacement(ctx context.Context, task orchestration.Task, l handover) (rules.Result, error) {
	switch gone, err := m.lost(ctx, l.nc.Spec.TargetNode); {
	case err != nil:
		return rules.Result{}, err
	case gone:
		return m.lose(ctx, task, l.nc, lostWith(l.nc))
	case l.replacement == nil && !madeBefore(task, l.nc):
		return m.createReplacementPod(ctx, task, l.nc)
	}
	if err := m.regain(task, l.replacement); err != nil {
		return rules.Result{}, err
	}
	kept, err := m.stored(ctx, task)
	if err != nil || kept == nil {
		return m.loseUnless(ctx, err, task, l.nc, withoutRecord)
	}
	next, why := replacementFrom(kept), cameToNothing(l.replacement)
	shut, _, err := m.away(ctx, l.nc, next)
	if err != nil {
		return rules.Result{}, err
	}
	full, err := m.full(ctx, task, l, next, shut)
	if err != nil || full {
		return m.loseUnless(ctx, err, task, l.nc, "the time is over: "+why)
	}
	return m.recreateReplacement(ctx, task, l, why, shut)
}

// recreateReplacement creates the next replacement after a pause, and only while the node takes it: a user who drains the node wants it
// without the pod. When the time is over, the state is kept.
func (m *migrate) recreateReplacement(ctx context.Context, task orchestration.Task, l handover, why, shut string) (rules.Result, error) {
	switch {
	case m.ends(task):
		return m.leave(l, "the time is over: "+why), nil
	case m.rests(task, l.nc):
	case l.replacement != nil:
		if err := m.clear(ctx, l.replacement); err != nil {
			return rules.Result{}, err
		}
	case shut == "":
		return m.createReplacementPod(ctx, task, l.nc)
	}
	again := "it is made again"
	if shut != "" {
		again = fmt.Sprintf("it is made again once node %s takes it: %s", l.nc.Spec.TargetNode, shut)
	}
	return rules.Result{Message: fmt.Sprintf("%s; %s; to have it begin anew, delete NodeCheckpoint %s", why, again, l.nc.Name)}, nil
}

// madeBefore tells whether a pod was made of the state before, in its action or after that.
func madeBefore(task orchestration.Task, nc *v1alpha1.NodeCheckpoint) bool {
	return task.Progress[progressTwin] != "" || nc.Annotations[annotationRequested] != ""
}

// cameToNothing says what became of a pod in the source's place that was made, and of which nothing was begun.
func cameToNothing(replacement *corev1.Pod) string {
	if replacement == nil || replacement.Status.Phase != corev1.PodFailed {
		return "the pod in its place was taken away before anything of it was begun"
	}
	return fmt.Sprintf("node %s has refused pod %s/%s: %s: %s", replacement.Spec.NodeName, replacement.Namespace, replacement.Name, replacement.Status.Reason, replacement.Status.Message)
}

// full tells whether the controller stops recreating the replacement. The time is over, and the node, which is healthy, had no room for
// the last two: it may have none for ever. A replacement that is gone may have been rejected for that reason: the StatefulSet controller
// deletes such a pod before any other controller has read why.
func (m *migrate) full(ctx context.Context, task orchestration.Task, l handover, next *corev1.Pod, shut string) (bool, error) {
	if shut != "" || l.replacement != nil && l.replacement.Status.Phase == corev1.PodFailed && !turnedAway(l.replacement) {
		delete(task.Progress, progressFull)
		return false, nil
	}
	since := m.since(task, progressFull)
	if m.since(task, progressMade) >= since || !m.over(task) {
		return false, nil
	}
	required, err := m.required(ctx, next)
	return !required, err
}

// turnedAway tells whether a kubelet says that it has not enough of something for a pod, or not as that wants it.
func turnedAway(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Status.Reason, "OutOf") || pod.Status.Reason == "TopologyAffinityError" || pod.Status.Reason == "UnexpectedAdmissionError"
}

// regain reserves the cores of a replacement that came to nothing again, until the next one has its own. A replacement that still
// terminates has its cores yet. If its claims still hold the cores, or another pod has taken them meanwhile, the controller retries.
func (m *migrate) regain(task orchestration.Task, replacement *corev1.Pod) error {
	had := task.Progress[progressHanded]
	if had == "" || replacement != nil && !finished(replacement) {
		return nil
	}
	room, err := state.ParseMigration(had)
	if err != nil {
		return err
	}
	refused := &state.RefusedError{}
	switch err := m.Store.ReserveAll(room.Reservations(task.Object.Name)); {
	case errors.As(err, &refused):
		return nil
	case err != nil:
		return err
	}
	task.Progress[state.ProgressReserved] = had
	return nil
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

// rests tells whether a replacement was created a moment ago, by the action or after it. A time that a fast clock recorded does not
// count.
func (m *migrate) rests(task orchestration.Task, nc *v1alpha1.NodeCheckpoint) bool {
	return slices.ContainsFunc([]string{nc.Annotations[annotationRequested], task.Progress[progressMade]}, func(noted string) bool {
		at, err := time.Parse(time.RFC3339Nano, noted)
		return err == nil && !at.After(m.Clock.Now()) && m.Clock.Now().Sub(at) < resting
	})
}

// note sets an annotation of a NodeCheckpoint.
func (m *migrate) note(ctx context.Context, nc *v1alpha1.NodeCheckpoint, key, value string) error {
	after := nc.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, key, value)
	if err := m.Client.Patch(ctx, after, client.MergeFrom(nc)); err != nil {
		return fmt.Errorf("noting %s on NodeCheckpoint %s: %w", key, nc.Name, err)
	}
	*nc = *after
	return nil
}
