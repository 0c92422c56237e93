package migration

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

const (
	// stalled is how long nothing may advance before a checkpoint or a transfer is given up.
	stalled = 150 * time.Second
	// lease is for how long agents hold what they have without hearing from here, and renewed when it is renewed: the copy is made only
	// well before that, as the source runs again after it.
	lease   = 5 * time.Minute
	renewed = 3 * time.Minute
	// briefly is how long a stopped source has to end: it cannot hear that it is asked to.
	briefly = int64(1)
)

// checkpoint brings the pod's state to the target, where a copy of the pod goes on with it. The source is stopped from the
// beginning until it goes, or until nothing is left of the copy.
func (m *migrate) checkpoint(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, error) {
	twin, err := m.copied(ctx, m.API, task)
	if err != nil {
		return rules.Result{}, err
	}
	nc, err := m.nodeCheckpoint(ctx, task)
	if err != nil {
		return rules.Result{}, err
	}
	switch {
	case task.Progress[progressCut] != "" || adopted(twin) || nc != nil && nc.Spec.Stage == v1alpha1.StageRelease:
		return m.outlive(ctx, task, source, twin, nc)
	case task.Undoing():
		return m.thaw(ctx, task, source, nc)
	case source == nil && !saved(nc):
		return rules.Result{Undo: true, Message: "the pod is gone, and nobody here has evicted it"}, nil
	case nc == nil:
		return m.prepareTwin(ctx, task, source, m.freeze)
	}
	if veto := interrupted(nc, m.Clock.Now()); veto != "" {
		return rules.Result{Undo: true, Message: veto}, nil
	}
	if err := m.renew(ctx, nc); err != nil {
		return rules.Result{}, err
	}
	if twin == nil {
		return m.advance(ctx, task, source, nc)
	}
	if result, settled, err := m.settles(ctx, task, twin); !settled || err != nil {
		return result, err
	}
	if why := unrestored(nc, twin); why != "" {
		return rules.Result{Message: why}, nil
	}
	task.Progress[progressEvidence] += ", and the runtime says that its containers were restored"
	return m.releaseSource(ctx, task, twin, nc)
}

// freeze has the source's agent stop the containers and write their state. The copy goes to the target only, so its gate of
// readiness and all that was asked of the pod's place was asked before.
func (m *migrate) freeze(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, error) {
	if err := m.enter(ctx, task, v1alpha1.MigrationCheckpointing); err != nil {
		return rules.Result{}, err
	}
	nc := &v1alpha1.NodeCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Name: task.Object.Name, Finalizers: []string{v1alpha1.FinalizerCheckpoint}},
		Spec: v1alpha1.NodeCheckpointSpec{
			PodNamespace: source.Namespace, PodName: source.Name, PodUID: source.UID,
			SourceNode: source.Spec.NodeName, TargetNode: task.Object.Spec.TargetNode,
			Stage: v1alpha1.StageCheckpoint, Expires: metav1.NewTime(m.Clock.Now().Add(lease)),
		},
	}
	for i := range source.Spec.Containers {
		nc.Spec.Containers = append(nc.Spec.Containers, v1alpha1.CheckpointedContainer{Name: source.Spec.Containers[i].Name})
	}
	switch err := m.Client.Create(ctx, nc); {
	case apierrors.IsInvalid(err) || apierrors.IsForbidden(err):
		return rules.Result{Undo: true, Message: "the state cannot be taken: " + err.Error()}, nil
	case err != nil && !apierrors.IsAlreadyExists(err):
		return rules.Result{}, fmt.Errorf("making NodeCheckpoint %s: %w", nc.Name, err)
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
		return m.fromArchive(ctx, task, nc)
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
	for i := range twin.Spec.Containers {
		c := &twin.Spec.Containers[i]
		image := imageOf(nc, c.Name)
		if image == "" {
			return rules.Result{Undo: true, Message: fmt.Sprintf("the target has no state of container %s", c.Name)}, nil
		}
		c.Image, c.ImagePullPolicy = image, corev1.PullNever
	}
	return m.makeTwin(ctx, task, twin)
}

// fromArchive is when the source has gone although it was stopped: its node has died, or somebody has deleted it. What it was is
// only in the archives then, and in no pod that it could be copied from.
func (m *migrate) fromArchive(_ context.Context, _ orchestration.Task, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	return rules.Result{Undo: true, Message: fmt.Sprintf("the pod is gone, and nobody here has evicted it; its state was on node %s", nc.Spec.TargetNode)}, nil
}

// releaseSource says, before the source goes, that it will not run again.
func (m *migrate) releaseSource(ctx context.Context, task orchestration.Task, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	down := func(s *v1alpha1.PodMigrationStatus) {
		since, ok := readySince(twin)
		if stopped := nc.Status.Source; ok && stopped != nil && stopped.StoppedTime != nil {
			ms := max(0, since.Sub(stopped.StoppedTime.Time)).Milliseconds()
			s.UnavailableMilliseconds = &ms
		}
	}
	if err := m.enter(ctx, task, v1alpha1.MigrationCuttingOver, verified(task, m.Clock.Now()), down); err != nil {
		return rules.Result{}, err
	}
	if since, ok := readySince(twin); ok && nc.Status.Source != nil && nc.Status.Source.StoppedTime != nil {
		task.Progress[progressDown] = max(0, since.Sub(nc.Status.Source.StoppedTime.Time)).String()
	}
	return rules.Result{Message: "the pod goes on on node " + nc.Spec.TargetNode + ", and the source is to go"}, m.stage(ctx, nc, v1alpha1.StageRelease)
}

// outlive has the source go, and what agents hold be removed.
func (m *migrate) outlive(ctx context.Context, task orchestration.Task, source, twin *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	m.markCut(task)
	if source == nil && twin != nil && twin.DeletionTimestamp == nil {
		if done, err := m.forget(ctx, nc, v1alpha1.CheckpointReleased); !done || err != nil {
			if m.over(task) {
				return m.succeed(ctx, task, source, twin)
			}
			return rules.Result{Message: "the pod goes on; waits until the agents have removed its state"}, err
		}
	}
	if source == nil || twin == nil || twin.DeletionTimestamp != nil || m.over(task) {
		return m.succeed(ctx, task, source, twin)
	}
	if metav1.GetControllerOf(source) != nil && !adopted(twin) {
		if err := m.yield(ctx, source); err != nil {
			return rules.Result{}, err
		}
		owner, err := m.replicaSet(ctx, source)
		if err != nil {
			return rules.Result{}, err
		}
		if owner != nil {
			return m.adopt(ctx, task, twin, owner)
		}
	}
	if metav1.GetControllerOf(source) == nil {
		answer, err := m.ask(ctx, task, source)
		if err != nil || answer.Refused() {
			return rules.Result{Message: "the source may not be evicted yet: " + answer.Why}, err
		}
	}
	return m.succeed(ctx, task, source, twin)
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
		if done, err := m.forget(ctx, nc, v1alpha1.CheckpointDiscarded); !done || err != nil {
			return rules.Result{Message: "waits until the pod goes on on its node"}, err
		}
	}
	return m.undo(ctx, task, source)
}

// nodeCheckpoint is what the agents do for the action; nil for nothing.
func (m *migrate) nodeCheckpoint(ctx context.Context, task orchestration.Task) (*v1alpha1.NodeCheckpoint, error) {
	nc := &v1alpha1.NodeCheckpoint{}
	err := m.API.Get(ctx, types.NamespacedName{Name: task.Object.Name}, nc)
	switch {
	case apierrors.IsNotFound(err) || err == nil && nc.Spec.PodUID != task.Object.Spec.Pods[0].UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading NodeCheckpoint %s: %w", task.Object.Name, err)
	}
	return nc, nil
}

// stage lets the agents go on, or has them end it.
func (m *migrate) stage(ctx context.Context, nc *v1alpha1.NodeCheckpoint, to v1alpha1.CheckpointStage) error {
	if nc.Spec.Stage == to || nc.Spec.Stage == v1alpha1.StageDiscard || nc.Spec.Stage == v1alpha1.StageRelease {
		return nil
	}
	return m.specify(ctx, nc, func(s *v1alpha1.NodeCheckpointSpec) { s.Stage = to })
}

// renew has the agents hold on while somebody is at it.
func (m *migrate) renew(ctx context.Context, nc *v1alpha1.NodeCheckpoint) error {
	now := m.Clock.Now()
	if nc.Spec.Expires.Sub(now) > renewed {
		return nil
	}
	return m.specify(ctx, nc, func(s *v1alpha1.NodeCheckpointSpec) { s.Expires = metav1.NewTime(now.Add(lease)) })
}

func (m *migrate) specify(ctx context.Context, nc *v1alpha1.NodeCheckpoint, change func(*v1alpha1.NodeCheckpointSpec)) error {
	after := nc.DeepCopy()
	change(&after.Spec)
	if err := m.Client.Patch(ctx, after, client.MergeFromWithOptions(nc, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing NodeCheckpoint %s: %w", nc.Name, err)
	}
	*nc = *after
	return nil
}

// forget takes the NodeCheckpoint away once its agents hold nothing. Those of nodes that are gone hold nothing.
func (m *migrate) forget(ctx context.Context, nc *v1alpha1.NodeCheckpoint, state v1alpha1.CheckpointState) (bool, error) {
	if nc == nil {
		return true, nil
	}
	for node, side := range map[string]*v1alpha1.CheckpointSide{nc.Spec.SourceNode: nc.Status.Source, nc.Spec.TargetNode: nc.Status.Target} {
		if s := stateOf(side); s == state || s == v1alpha1.CheckpointFailed || s == "" && node == nc.Spec.TargetNode {
			continue
		}
		if gone, err := m.lost(ctx, node); !gone || err != nil {
			return false, err
		}
	}
	if nc.DeletionTimestamp == nil {
		if err := m.Client.Delete(ctx, nc, client.Preconditions{UID: &nc.UID}); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("deleting NodeCheckpoint %s: %w", nc.Name, err)
		}
	}
	after := nc.DeepCopy()
	if controllerutil.RemoveFinalizer(after, v1alpha1.FinalizerCheckpoint) {
		if err := m.Client.Patch(ctx, after, client.MergeFrom(nc)); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("letting NodeCheckpoint %s go: %w", nc.Name, err)
		}
	}
	return true, nil
}

// lost tells whether a node is no longer there.
func (m *migrate) lost(ctx context.Context, name string) (bool, error) {
	err := m.API.Get(ctx, types.NamespacedName{Name: name}, &corev1.Node{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading node %s: %w", name, err)
	}
	return err != nil, nil
}

// interrupted is why the state cannot be had; empty: it may be.
func interrupted(nc *v1alpha1.NodeCheckpoint, now time.Time) string {
	for node, side := range map[string]*v1alpha1.CheckpointSide{nc.Spec.SourceNode: nc.Status.Source, nc.Spec.TargetNode: nc.Status.Target} {
		switch stateOf(side) {
		case v1alpha1.CheckpointFailed:
			return fmt.Sprintf("node %s: %s", node, side.Message)
		case v1alpha1.CheckpointDiscarded, v1alpha1.CheckpointReleased:
			return fmt.Sprintf("the agent of node %s has given the pod's state up: %s", node, side.Message)
		}
	}
	switch {
	case nc.DeletionTimestamp != nil:
		return fmt.Sprintf("somebody has deleted NodeCheckpoint %s", nc.Name)
	case !now.Before(nc.Spec.Expires.Time):
		return "the agents were not heard to for too long, and may have let the source go on"
	case !saved(nc) && now.Sub(progressed(nc)) > stalled:
		return fmt.Sprintf("nothing has advanced for %s", stalled)
	}
	return ""
}

// progressed is when something was last seen to advance.
func progressed(nc *v1alpha1.NodeCheckpoint) time.Time {
	last := nc.CreationTimestamp.Time
	for _, side := range []*v1alpha1.CheckpointSide{nc.Status.Source, nc.Status.Target} {
		if side != nil && side.ProgressTime != nil && side.ProgressTime.After(last) {
			last = side.ProgressTime.Time
		}
	}
	return last
}

func stateOf(side *v1alpha1.CheckpointSide) v1alpha1.CheckpointState {
	if side == nil {
		return ""
	}
	return side.State
}

// saved tells whether the target has the whole state.
func saved(nc *v1alpha1.NodeCheckpoint) bool {
	return nc != nil && stateOf(nc.Status.Target) == v1alpha1.CheckpointTransferred
}

func imageOf(nc *v1alpha1.NodeCheckpoint, container string) string {
	i := slices.IndexFunc(nc.Status.Target.Archives, func(a v1alpha1.CheckpointArchive) bool { return a.Container == container })
	if i < 0 {
		return ""
	}
	return nc.Status.Target.Archives[i].Image
}
