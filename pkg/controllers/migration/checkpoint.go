package migration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// stalled is how long nothing may advance before a checkpoint or a transfer is given up.
	stalled = 150 * time.Second
	// briefly is how long a stopped source has to end: it cannot hear that it is asked to.
	briefly = int64(1)
)

// checkpoint brings the pod's state to the target, where a copy of the pod goes on with it. The source is stopped from the
// beginning until it goes, or until nothing is left of the copy. Once the copy serves neither time nor an abort undoes it.
func (m *migrate) checkpoint(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, error) {
	twin, err := m.twinOf(ctx, task)
	if err != nil {
		return rules.Result{}, err
	}
	nc, err := m.nodeCheckpoint(ctx, task)
	if err != nil {
		return rules.Result{}, err
	}
	switch {
	case task.Progress[progressTemplate] != "":
		return m.handOver(ctx, task, source, handover{twin, nc})
	case handedOver(task, twin, nc):
		return m.completeCutOver(ctx, task, source, twin, nc)
	case task.Undoing() && (serves(task, twin, nc) || alone(task, source, twin, nc)): // it goes on all the same
		delete(task.Progress, progressForfeited)
		return m.releaseSource(ctx, task, twin, nc)
	case task.Undoing() && !m.clings(task, source, nc):
		return m.resumeSource(ctx, task, source, nc)
	case source == nil && !saved(nc):
		return rules.Result{Undo: true, Message: "the pod is gone, and nobody here has evicted it"}, nil
	case nc == nil && twin != nil:
		return rules.Result{Undo: true, Message: "somebody has deleted the NodeCheckpoint"}, nil
	case nc == nil:
		return m.prepareTwin(ctx, task, source, m.freeze)
	}
	result, err := m.goOn(ctx, task, source, twin, nc)
	result, err = m.orRelent(task, source, nc, result, err)
	return orForfeit(task, source, nc, result), err
}

// handedOver tells whether the copy is what goes on, and the source what goes.
func handedOver(task orchestration.Task, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) bool {
	return task.Progress[progressCut] != "" || adopted(twin) || nc != nil && nc.Spec.Stage == v1alpha1.StageRelease
}

// goOn takes the state from stage to stage, until a copy of the pod has it.
func (m *migrate) goOn(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	recordStopLimit(task, source)
	if veto := m.hindered(task, source, twin, nc); veto != "" {
		return rules.Result{Undo: true, Message: veto}, nil
	}
	if err := m.renew(ctx, task, nc); err != nil {
		return rules.Result{}, err
	}
	m.remember(task, nc)
	serves(task, twin, nc) // which is on record from now on
	if twin == nil && emptied(task, source, nc) != "" {
		return m.advance(ctx, task, source, nc)
	}
	if twin == nil {
		switch why, err := m.shutOut(ctx, source, nc); {
		case err != nil:
			return rules.Result{}, err
		case why != "":
			return elsewhere(task, why), nil
		}
		return m.advance(ctx, task, source, nc)
	}
	return m.proveCopy(ctx, task, source, twin, nc)
}

// proveCopy waits until a copy goes on with the state. The source stands still meanwhile, unless it has ended.
func (m *migrate) proveCopy(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	limit := unmadeFor
	if source == nil || emptied(task, source, nc) != "" {
		limit = toRestore(nc)
	}
	if why, err := m.unmade(ctx, nc, twin, limit); why != "" || err != nil {
		return rules.Result{Undo: why != "", Message: why}, err
	}
	result, settled, err := m.settles(ctx, task, twin)
	if settled {
		result.Message = unrestored(nc, twin)
	}
	if err != nil || !settled || result.Message != "" {
		delete(task.Progress, progressEvidence)
		if source != nil && emptied(task, source, nc) != "" { // its state is nowhere else: it has the rest of the time
			return result, err
		}
		return m.overdue(task, nc, twin, result), err
	}
	task.Progress[progressEvidence] += runtimeSays
	return m.releaseSource(ctx, task, twin, nc)
}

// freeze has the source's agent stop the containers and write their state. The copy goes to the target only, so its gate of
// readiness and all that was asked of the pod's place was asked before.
func (m *migrate) freeze(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, error) {
	if why, err := m.outweighed(ctx, source); err != nil {
		return rules.Result{}, err
	} else if why != "" {
		return m.wait(ctx, task, source, why)
	}
	if why := impatient(source); why != "" {
		return rules.Result{Undo: true, Message: "the state cannot be taken: " + why}, nil
	}
	if err := m.enter(ctx, task, v1alpha1.MigrationCheckpointing, describe(task, source)); err != nil {
		return rules.Result{}, err
	}
	if needsHandover(metav1.GetControllerOf(source)) {
		if result, guarded, err := m.guard(ctx, task, source); !guarded || err != nil {
			return result, err
		}
	}
	recordStopLimit(task, source)
	nc := m.checkpointOf(task, source)
	switch err := m.Client.Create(ctx, nc); {
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		return rules.Result{Undo: true, Message: "the state cannot be taken: " + err.Error()}, nil
	case err != nil && !apierrors.IsAlreadyExists(err):
		return rules.Result{}, fmt.Errorf("making NodeCheckpoint %s: %w", nc.Name, err)
	case err == nil:
		m.Recorder.Publish(events.Checkpointing(source, string(source.UID), nc.Spec.TargetNode, task.Object.Name))
	}
	return rules.Result{Message: "the source's agent is to stop the pod and to write its state"}, nil
}

// advance goes to the next stage when the agents have done theirs, and makes the copy after the last.
func (m *migrate) advance(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	switch {
	case nc.Spec.Stage == v1alpha1.StageCheckpoint && stateOf(nc.Status.Source) == v1alpha1.CheckpointCheckpointed:
		if err := m.enter(ctx, task, v1alpha1.MigrationTransferring, carrying(nc)); err != nil {
			return rules.Result{}, err
		}
		return rules.Result{Message: "the pod is stopped and its state written; it goes to node " + nc.Spec.TargetNode}, m.stage(ctx, nc, v1alpha1.StageTransfer)
	case nc.Spec.Stage == v1alpha1.StageCheckpoint:
		return rules.Result{Message: "waits until the source's agent has written the pod's state"}, nil
	case !saved(nc):
		return rules.Result{Message: "waits until the target has the pod's state"}, nil
	}
	if source == nil {
		return rules.Result{Undo: true, Message: fmt.Sprintf("the pod is gone, and nobody here has evicted it; its state was on node %s", nc.Spec.TargetNode)}, nil
	}
	if needsHandover(metav1.GetControllerOf(source)) {
		return m.storeReplacement(ctx, task, source, nc)
	}
	if err := m.stage(ctx, nc, v1alpha1.StageRestore); err != nil { // from here on the source does not run by itself, however long no controller is running
		return rules.Result{}, err
	}
	return m.createCopy(ctx, task, source, nc)
}

// createCopy creates the copy whose containers are created from the archives.
func (m *migrate) createCopy(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	if err := m.enter(ctx, task, v1alpha1.MigrationRestoring, carrying(nc)); err != nil {
		return rules.Result{}, err
	}
	twin := ofPod(task, source)
	if owner := metav1.GetControllerOf(source); owner != nil {
		set, err := m.replicaSet(ctx, source)
		if err != nil || set == nil {
			return rules.Result{Undo: set == nil && err == nil, Message: "the pod's ReplicaSet is gone"}, err
		}
		twin = ofTemplate(task, source, set)
	}
	if veto := madeOf(nc, &twin.Spec); veto != "" {
		return rules.Result{Undo: true, Message: veto}, nil
	}
	if emptied(task, source, nc) != "" {
		tolerateCordon(&twin.Spec)
	}
	return m.makeTwin(ctx, task, twin)
}

// madeOf has a pod's containers be made of the archives, or says why they cannot.
func madeOf(nc *v1alpha1.NodeCheckpoint, spec *corev1.PodSpec) (veto string) {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		image := imageOf(nc, c.Name)
		if image == "" {
			return fmt.Sprintf("the target has no state of container %s", c.Name)
		}
		c.Image, c.ImagePullPolicy = image, corev1.PullNever
	}
	return ""
}

// releaseSource says, before the source goes, that it will not run again.
func (m *migrate) releaseSource(ctx context.Context, task orchestration.Task, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	down, known := standstill(task, twin)
	if known {
		task.Progress[progressDown] = down.String()
	}
	if err := m.enter(ctx, task, v1alpha1.MigrationCuttingOver, verified(task, m.Clock.Now()), unavailable(down, known)); err != nil {
		return rules.Result{}, err
	}
	return rules.Result{Message: "the pod goes on on node " + nc.Spec.TargetNode + ", and the source is to go"}, m.stage(ctx, nc, v1alpha1.StageRelease)
}

// standstill is for how long neither the source nor the copy served, where both ends of that time are known.
func standstill(task orchestration.Task, twin *corev1.Pod) (time.Duration, bool) {
	since, ok := readySince(twin)
	stopped, err := time.Parse(time.RFC3339Nano, task.Progress[progressStopped])
	if !ok || err != nil {
		return 0, false
	}
	return max(0, since.Sub(stopped)), true
}

func unavailable(d time.Duration, known bool) func(*v1alpha1.PodMigrationStatus) {
	return func(s *v1alpha1.PodMigrationStatus) {
		if ms := d.Milliseconds(); known {
			s.UnavailableMilliseconds = &ms
		}
	}
}

// resumeSource deletes the copy, and has the source run on after that.
func (m *migrate) resumeSource(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	if err := m.enter(ctx, task, v1alpha1.MigrationRollingBack); err != nil {
		return rules.Result{}, err
	}
	forfeited(task, source, nc)
	if gone, err := m.discard(ctx, task); !gone || err != nil {
		return rules.Result{Message: "waits until the pod in its place is gone"}, err
	}
	if nc != nil {
		if err := m.stage(ctx, nc, v1alpha1.StageDiscard); err != nil {
			return rules.Result{}, err
		}
	}
	if source == nil || needsHandover(metav1.GetControllerOf(source)) { // up to here a replacement might have been restored from it
		if err := m.unstore(ctx, task); err != nil {
			return rules.Result{}, err
		}
	}
	if done, err := m.forget(ctx, nc); !done || err != nil {
		return rules.Result{Message: "waits until the pod goes on on its node"}, err
	}
	return m.undo(ctx, task, source)
}
