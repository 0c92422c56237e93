package migration

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// stalled is how long nothing may advance before a checkpoint or a transfer is given up.
	stalled = 150 * time.Second
	// lease is for how long agents hold what they have without hearing from here, until a copy may be there, and renewed when it is renewed.
	lease   = 5 * time.Minute
	renewed = 3 * time.Minute
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
	case task.Progress[progressHeir] != "":
		return m.inherit(ctx, task, source, legacy{twin, nc})
	case handedOver(task, twin, nc):
		return m.outlive(ctx, task, source, twin, nc)
	case task.Undoing() && (alone(source, twin, nc) || serves(task, twin, nc)):
		return m.prevail(ctx, task, source, twin, nc)
	case task.Undoing():
		return m.thaw(ctx, task, source, nc)
	case source == nil && !saved(nc):
		return rules.Result{Undo: true, Message: "the pod is gone, and nobody here has evicted it"}, nil
	case nc == nil && twin != nil:
		return rules.Result{Undo: true, Message: "somebody has deleted the NodeCheckpoint"}, nil
	case nc == nil:
		return m.prepareTwin(ctx, task, source, m.freeze)
	}
	return m.goOn(ctx, task, source, twin, nc)
}

// handedOver tells whether the copy is what goes on, and the source what goes.
func handedOver(task orchestration.Task, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) bool {
	return task.Progress[progressCut] != "" || adopted(twin) || nc != nil && nc.Spec.Stage == v1alpha1.StageRelease
}

// goOn takes the state from stage to stage, until a copy of the pod has it.
func (m *migrate) goOn(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	if veto := m.hindered(task, source, twin, nc); veto != "" {
		return rules.Result{Undo: true, Message: veto}, nil
	}
	if err := m.renew(ctx, nc); err != nil {
		return rules.Result{}, err
	}
	m.remember(task, nc)
	if twin == nil {
		switch why, err := m.shutOut(ctx, source, nc); {
		case err != nil:
			return rules.Result{}, err
		case why != "":
			return elsewhere(task, why), nil
		}
		return m.advance(ctx, task, source, nc)
	}
	if why := m.unmade(nc, twin); why != "" {
		return rules.Result{Undo: true, Message: why}, nil
	}
	result, settled, err := m.settles(ctx, task, twin)
	if settled {
		result.Message = unrestored(nc, twin)
	}
	if err != nil || !settled || result.Message != "" {
		delete(task.Progress, progressEvidence)
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
	if err := m.enter(ctx, task, v1alpha1.MigrationCheckpointing, describe(task, source)); err != nil {
		return rules.Result{}, err
	}
	if heritable(metav1.GetControllerOf(source)) {
		if result, guarded, err := m.guard(ctx, task, source); !guarded || err != nil {
			return result, err
		}
	}
	nc := &v1alpha1.NodeCheckpoint{
		ObjectMeta: metav1.ObjectMeta{
			Name: task.Object.Name, Finalizers: []string{v1alpha1.FinalizerCheckpoint}, Labels: map[string]string{v1alpha1.LabelMigrationAction: task.Object.Name},
		},
		Spec: v1alpha1.NodeCheckpointSpec{
			PodNamespace: source.Namespace, PodName: source.Name, PodUID: source.UID,
			SourceNode: source.Spec.NodeName, TargetNode: task.Object.Spec.TargetNode,
			Stage: v1alpha1.StageCheckpoint, Expires: metav1.NewTime(m.Clock.Now().Add(lease)),
		},
	}
	if limit, probed := tolerance(source); probed {
		task.Progress[progressTolerance] = limit.String()
	}
	for i := range source.Spec.Containers {
		nc.Spec.Containers = append(nc.Spec.Containers, v1alpha1.CheckpointedContainer{Name: source.Spec.Containers[i].Name})
	}
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
	if heritable(metav1.GetControllerOf(source)) {
		return m.bequeath(ctx, task, source, nc)
	}
	if err := m.stage(ctx, nc, v1alpha1.StageRestore); err != nil { // from here on the source does not run by itself, however long nobody is here
		return rules.Result{}, err
	}
	return m.thawedTwin(ctx, task, source, nc)
}

// thawedTwin makes the copy whose containers are made from the archives.
func (m *migrate) thawedTwin(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
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

// standstill is for how long nobody served, where both ends of that are known.
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

// outlive has the source go, and the copy settle down once it has gone.
func (m *migrate) outlive(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
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
		return m.bereft(ctx, task, source, nc)
	case source != nil && m.ends(task):
		return m.succeed(ctx, task, source, twin)
	case source != nil:
		return m.dismiss(ctx, task, source, twin)
	}
	return m.settleDown(ctx, task, twin, nc)
}

// settleDown has what agents hold be removed, and the copy prove itself, if there was no time for that before.
func (m *migrate) settleDown(ctx context.Context, task orchestration.Task, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	if result, done, err := m.foster(ctx, task, twin); !done || err != nil {
		return result, err
	}
	if err := m.hasten(ctx, task.Object.Spec.Pods[0]); err != nil {
		return rules.Result{}, err
	}
	if done, err := m.forget(ctx, nc); err != nil || !done && !m.ends(task) {
		return rules.Result{Message: "the pod goes on; waits until the agents have removed its state"}, err
	}
	if result, confirmed := m.confirm(task, twin); !confirmed {
		return result, nil
	}
	return m.succeed(ctx, task, nil, twin)
}

// dismiss has the stopped source go: its ReplicaSet has one pod too many then, or it is evicted, also where the ReplicaSet would have another one go
// for long.
func (m *migrate) dismiss(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod) (rules.Result, error) {
	why, err := m.outweighed(ctx, source)
	switch {
	case err != nil || why != "" && !adopted(twin) && !m.lingers(task):
		return rules.Result{Message: why}, err
	case metav1.GetControllerOf(source) == nil || why != "" && !adopted(twin):
		answer, err := m.ask(ctx, task, source)
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

// bereft ends a migration whose copy somebody has taken away after the source was released: what the agents had is removed.
// The source is stopped; one that an owner makes again goes, so that it is.
func (m *migrate) bereft(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	said := ""
	if source != nil {
		said = fmt.Sprintf("; the source is stopped on node %s", source.Spec.NodeName)
		if metav1.GetControllerOf(source) != nil {
			if answer, err := m.ask(ctx, task, source); err != nil || answer.Refused() && !m.ends(task) {
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

// hasten shortens the end of a source that is stopped: it cannot hear that it is asked to end.
func (m *migrate) hasten(ctx context.Context, named v1alpha1.ActionPod) error {
	pod := &corev1.Pod{}
	err := m.API.Get(ctx, types.NamespacedName{Namespace: named.Namespace, Name: named.Name}, pod)
	if err != nil || pod.UID != named.UID || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds <= briefly {
		return client.IgnoreNotFound(err)
	}
	if err := m.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(briefly)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s/%s, which is stopped: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// thaw takes the copy away, and has the source go on after that.
func (m *migrate) thaw(ctx context.Context, task orchestration.Task, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	if err := m.enter(ctx, task, v1alpha1.MigrationRollingBack); err != nil {
		return rules.Result{}, err
	}
	if gone, err := m.discard(ctx, task); !gone || err != nil {
		return rules.Result{Message: "waits until the pod in its place is gone"}, err
	}
	if nc != nil {
		if err := m.stage(ctx, nc, v1alpha1.StageDiscard); err != nil {
			return rules.Result{}, err
		}
		if done, err := m.forget(ctx, nc); !done || err != nil {
			return rules.Result{Message: "waits until the pod goes on on its node"}, err
		}
	}
	return m.undo(ctx, task, source)
}
