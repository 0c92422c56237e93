package migration

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// atLast is how long before the end of the time for undoing a state is given up that is on the target only, and that no pod goes on with.
const atLast = 15 * time.Second

// lostMemory is how it is told what is lost.
const lostMemory = "what the pod had in memory is lost: "

// stood tells whether the source's agent has ever said that it stopped the source. What has come to its end before that has lost nothing.
func stood(task orchestration.Task, nc *v1alpha1.NodeCheckpoint) bool {
	return task.Progress[progressStopped] != "" || nc.Status.Source != nil && nc.Status.Source.StoppedTime != nil
}

// emptied returns why a source has nothing in memory any longer that its copy could take. Its agent says that a stopped container has
// ended, or the pod has ended while it was stopped. The agent keeps stopped what the kubelet has started in its place. It is empty if
// the source has its memory, as far as is known. Once recorded, the reason stays.
func emptied(task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) string {
	why := ""
	switch {
	case nc == nil:
	case nc.Status.Source != nil && nc.Status.Source.Disturbance == v1alpha1.CheckpointEnded:
		why = fmt.Sprintf("the source has ended while it stood still: node %s: %s", nc.Spec.SourceNode, nc.Status.Source.Message)
	case source != nil && finished(source) && stood(task, nc):
		why = fmt.Sprintf("the source has ended while it stood still: %s", source.Status.Phase)
	}
	if task.Progress[progressEmptied] == "" && why != "" {
		task.Progress[progressEmptied] = why
	}
	return task.Progress[progressEmptied]
}

// alone tells whether a copy was restored from the state of a source that another controller or a user deleted, or that has lost its
// memory. That state is nowhere else, so neither an abort nor the end of the time deletes the copy.
func alone(task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) bool {
	return (source == nil || emptied(task, source, nc) != "") && goesOn(twin, nc)
}

// goesOn tells whether a copy goes on with the state, as far as the target's runtime says, ready or not.
func goesOn(twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) bool {
	return twin != nil && twin.DeletionTimestamp == nil && !finished(twin) && !halted(twin) &&
		nc != nil && nc.Spec.Stage == v1alpha1.StageRestore && unrestored(nc, twin) == ""
}

// halted tells whether a container of a pod has ended, and is not yet begun anew.
func halted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Terminated != nil })
}

// serves tells whether a copy was restored and is, or was, ready, which stays on record. The copy may have answered a client by then, so
// its state is newer than that of the stopped source. Neither an abort, nor a timeout, nor what the source's agent says, nor a short
// unreadiness deletes such a copy. A copy that does not match its source does not count.
func serves(task orchestration.Task, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) bool {
	if task.Progress[progressUnfit] != "" || !goesOn(twin, nc) {
		return false
	}
	if idle(twin) == "" || wasReady(twin) {
		task.Progress[progressServed] = string(twin.UID)
	}
	return task.Progress[progressServed] == string(twin.UID)
}

// restless returns why a source has newer state than what was taken: its agent says that a container was resumed. The agent says so from
// stage Restore on, and has stopped the container again; before that stage it gives up. It is empty if the source is stopped, or has no
// state.
func restless(source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) string {
	side := nc.Status.Source
	if source == nil || stateOf(side) != v1alpha1.CheckpointCheckpointed || side.Disturbance != v1alpha1.CheckpointResumed {
		return ""
	}
	return fmt.Sprintf("the source does not stand still any longer: node %s: %s", nc.Spec.SourceNode, side.Message)
}

// hindered returns why no copy can be restored; it is empty if one may be. What the source's side says no longer matters once the source
// has gone. For how long the source may be stopped does not matter once it has no memory.
func (m *migrate) hindered(task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) string {
	if source == nil && twin != nil && nc.Spec.Stage == v1alpha1.StageRestore {
		return spoilt(nc)
	}
	if emptied(task, source, nc) != "" {
		return m.interrupted(task, nc)
	}
	if why := restless(source, nc); why != "" {
		return why
	}
	return m.broken(task, nc)
}

// whole tells whether all that the source had in memory is in archives. The target has them, or the source's node has them and may yet
// send them.
func whole(nc *v1alpha1.NodeCheckpoint) bool {
	return saved(nc) || nc != nil && transient(nc) && stateOf(nc.Status.Source) == v1alpha1.CheckpointCheckpointed
}

// clings tells whether a pod is still to be restored although the migration is to be rolled back: the source has lost its state, so a
// rollback would lose it. The last of the time is for the rollback.
func (m *migrate) clings(task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) bool {
	if !task.Undoing() || source == nil || !whole(nc) || emptied(task, source, nc) == "" || task.Progress[progressForfeited] != "" {
		return false
	}
	if !transient(nc) && nc.Spec.Stage != v1alpha1.StageRestore {
		return false
	}
	deadline, ok := task.Action.Deadline()
	if ok && !m.Clock.Now().Add(atLast).Before(deadline) {
		forfeit(task, "no pod went on with it in time; "+task.Progress[progressEmptied])
		return false
	}
	return true
}

// forfeit remembers that what was in memory is lost, and why, which its condition says. The first reason counts.
func forfeit(task orchestration.Task, why string) {
	if task.Progress[progressForfeited] == "" && v1alpha1.MigrationStrategy(task.Progress[progressStrategy]) == v1alpha1.StrategyCheckpoint {
		task.Progress[progressForfeited] = why
	}
}

// orForfeit does so where what would be undone is a state that the source has no longer.
func orForfeit(task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint, r rules.Result) rules.Result {
	if r.Undo && emptied(task, source, nc) != "" {
		forfeit(task, r.Message)
	}
	return r
}

// forfeited does so where a source whose copy is taken away has nothing in memory.
func forfeited(task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) {
	if source == nil {
		forfeit(task, "the pod is gone")
	} else if why := emptied(task, source, nc); why != "" {
		forfeit(task, why)
	}
}
