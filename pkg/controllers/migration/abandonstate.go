package migration

import (
	"context"
	"fmt"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// spoilt is why the target has no state any longer of a source that is gone; empty: it has. What the source's side says no longer matters.
func spoilt(nc *v1alpha1.NodeCheckpoint) string {
	switch {
	case nc == nil || nc.DeletionTimestamp != nil:
		return "somebody has deleted the NodeCheckpoint"
	case stateOf(nc.Status.Target) == v1alpha1.CheckpointFailed:
		return fmt.Sprintf("node %s: %s", nc.Spec.TargetNode, nc.Status.Target.Message)
	case !saved(nc):
		return fmt.Sprintf("the agent of node %s has given the pod's state up", nc.Spec.TargetNode)
	}
	return ""
}

// lose gives the state up: the source is gone, so its owner makes the pod anew.
func (m *migrate) lose(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint, why string) (rules.Result, error) {
	task.Progress[progressLost], task.Progress[progressStateless] = why, "true"
	return m.anew(ctx, task, nc)
}

// loseOrKeep abandons the state, unless a replacement was restored from it that has not proven itself. That state is nowhere else, so
// the replacement stays, and has the rest of the time.
func (m *migrate) loseOrKeep(ctx context.Context, task orchestration.Task, l handover, why string) (rules.Result, error) {
	if l.replacement == nil || l.replacement.DeletionTimestamp != nil || finished(l.replacement) || restarts(l.replacement) > 0 ||
		task.Progress[progressRestored] != string(l.replacement.UID) && (l.nc == nil || unrestored(l.nc, l.replacement) != "") {
		return m.lose(ctx, task, l.nc, why)
	}
	kept := rules.Result{Message: "the pod goes on with its state, and stays: " + why}
	if err := m.free(ctx, task); err != nil {
		return rules.Result{}, err
	}
	if l.nc == nil {
		task.Progress[progressReleased] = "true"
		return kept, nil
	}
	return kept, m.stage(ctx, l.nc, v1alpha1.StageRelease)
}

// leave ends the action of a source that has gone before it is known that a pod goes on with its state, which is seen to afterwards.
func (m *migrate) leave(l handover, why string) rules.Result {
	return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("%s; its state stays on node %s for %s", why, l.nc.Spec.TargetNode, stateRetention)}
}

func (m *migrate) loseUnless(ctx context.Context, err error, task orchestration.Task, nc *v1alpha1.NodeCheckpoint, why string) (rules.Result, error) {
	if err != nil {
		return rules.Result{}, err
	}
	return m.lose(ctx, task, nc, why)
}

// anew takes away what was made, lets the owner make its pod again, and waits until that runs.
func (m *migrate) anew(ctx context.Context, task orchestration.Task, nc *v1alpha1.NodeCheckpoint) (rules.Result, error) {
	lost := "its state could not come along: " + task.Progress[progressLost]
	if err := m.enter(ctx, task, v1alpha1.MigrationRollingBack); err != nil { // from here on the owner may make it
		return rules.Result{}, err
	}
	if task.Progress[progressGone] == "" { // after that, a pod in the source's place is one that the owner has made
		gone, err := m.discard(ctx, task)
		if gone && err == nil {
			task.Progress[progressGone] = "true"
		}
		return rules.Result{Message: lost + "; waits until the pod in its place is gone"}, err
	}
	if err := m.hand(task); err != nil {
		return rules.Result{}, err
	}
	if err := m.unstore(ctx, task); err != nil {
		return rules.Result{}, err
	}
	forgotten, err := m.relinquish(ctx, nc)
	if err != nil {
		return rules.Result{}, err
	}
	result, err := m.begun(ctx, task)
	switch {
	case err != nil:
		return rules.Result{}, err
	case result.Outcome.Over() && !forgotten && !m.ends(task):
		return rules.Result{Message: lost + "; waits until the agents have removed its state"}, nil
	case !result.Outcome.Over() && m.ends(task):
		result.Outcome = rules.Failed
	}
	result.Message = lost + "; " + result.Message
	return result, nil
}

// relinquish has the agents remove what they hold. The source's never lets it run again: it is gone.
func (m *migrate) relinquish(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	if nc == nil {
		return true, nil
	}
	if err := m.stage(ctx, nc, v1alpha1.StageRelease); err != nil {
		return false, err
	}
	return m.forget(ctx, nc)
}

// ends tells whether the time for undoing is over, too.
func (m *migrate) ends(task orchestration.Task) bool {
	deadline, ok := task.Action.Deadline()
	return task.Undoing() && ok && !m.Clock.Now().Add(ending).Before(deadline)
}

// begun says how far the pod is that the owner makes of its template.
func (m *migrate) begun(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	b, err := recorded(task.Progress)
	if err != nil || b == nil {
		return rules.Result{Outcome: rules.Failed, Message: "nobody knows what was there before"}, err
	}
	pod, err := m.replacement(ctx, task, *b)
	switch {
	case err != nil:
		return rules.Result{}, err
	case pod == nil:
		return m.missing(ctx, task, *b)
	case pod.Spec.NodeName == "":
		return rules.Result{Message: fmt.Sprintf("pod %s/%s, which begins anew, waits for a node%s", pod.Namespace, pod.Name, unschedulable(pod))}, nil
	}
	evidence, why := m.prove(task, pod)
	if why != "" {
		return rules.Result{Message: why}, nil
	}
	task.Progress[progressEvidence] = evidence
	if pod.Spec.NodeName == b.Node {
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("pod %s/%s begins anew on node %s, where it was", pod.Namespace, pod.Name, b.Node)}, nil
	}
	return m.done(task, pod, fmt.Sprintf("pod %s/%s begins anew on node %s", pod.Namespace, pod.Name, pod.Spec.NodeName)), nil
}
