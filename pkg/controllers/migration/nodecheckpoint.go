package migration

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

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

func (m *migrate) specify(ctx context.Context, nc *v1alpha1.NodeCheckpoint, change func(*v1alpha1.NodeCheckpointSpec)) error {
	after := nc.DeepCopy()
	change(&after.Spec)
	if err := m.Client.Patch(ctx, after, client.MergeFromWithOptions(nc, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing NodeCheckpoint %s: %w", nc.Name, err)
	}
	*nc = *after
	return nil
}

// forget deletes the NodeCheckpoint once its agents hold nothing, whichever way they came to that. Agents of nodes that are gone hold
// nothing.
func (m *migrate) forget(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	if nc == nil {
		return true, nil
	}
	for node, side := range map[string]*v1alpha1.CheckpointSide{nc.Spec.SourceNode: nc.Status.Source, nc.Spec.TargetNode: nc.Status.Target} {
		if side.Settled() || side == nil && node == nc.Spec.TargetNode {
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
func (m *migrate) interrupted(task orchestration.Task, nc *v1alpha1.NodeCheckpoint) string {
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
	case transient(nc) && !m.Clock.Now().Before(nc.Spec.Expires.Time):
		return cmp.Or(m.tired(task), "the agents were not heard to for too long, and may have let the source go on")
	case !saved(nc) && m.watches.unchanged(task.Object.Name, progressOf(nc), m.Clock.Now()) > stalled:
		return fmt.Sprintf("nothing has advanced for %s", stalled)
	}
	return ""
}

// shutOut returns why the target of the state takes no pod any longer; it is empty if it does. The target was free when its room was
// reserved, and may have been cordoned or tainted, or have died, since. The controller asks before the source goes, and not after that:
// the state is nowhere else then.
func (m *migrate) shutOut(ctx context.Context, source *corev1.Pod, nc *v1alpha1.NodeCheckpoint) (string, error) {
	why, err := m.nodeVeto(ctx, nc.Spec.TargetNode, func(node *corev1.Node) string {
		if why := shut(node); why != "" || source == nil {
			return why
		}
		return untolerated(node, source)
	})
	if why != "" {
		why = fmt.Sprintf("node %s takes no pod any longer: %s", nc.Spec.TargetNode, why)
	}
	return why, err
}

// untolerated is which taint of a node keeps the pod off it; empty: none does.
func untolerated(node *corev1.Node, pod *corev1.Pod) string {
	taint, kept := schedulingcorev1.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	}, false)
	if !kept {
		return ""
	}
	return "the node has taint " + taint.ToString()
}

// transient: agents end it by themselves when they hear nothing for too long.
func transient(nc *v1alpha1.NodeCheckpoint) bool {
	return nc.Spec.Stage == v1alpha1.StageCheckpoint || nc.Spec.Stage == v1alpha1.StageTransfer
}

// progressOf is what changes when an agent advances. It tells no time: agents have clocks of their own.
func progressOf(nc *v1alpha1.NodeCheckpoint) string {
	text := string(nc.Spec.Stage)
	for _, side := range []*v1alpha1.CheckpointSide{nc.Status.Source, nc.Status.Target} {
		if side != nil {
			text += fmt.Sprintf(" %s %d %s", side.State, side.Bytes, side.ProgressTime)
		}
	}
	return text
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
