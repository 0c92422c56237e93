package migration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// away returns why the node that holds the state currently keeps the pod from being restored: the kubelet does not report, or the node
// takes no pod for now. It is empty if the node does not prevent that. The state on the disk is still there when the node returns. gone
// says that the node is gone from the API server, and the state with it.
func (m *migrate) away(ctx context.Context, nc *v1alpha1.NodeCheckpoint, replacement *corev1.Pod) (why string, gone bool, err error) {
	node := &corev1.Node{}
	switch err := m.Client.Get(ctx, types.NamespacedName{Name: nc.Spec.TargetNode}, node); {
	case apierrors.IsNotFound(err):
		gone, err := m.lost(ctx, nc.Spec.TargetNode) // which only the API server may say
		return "the node is not seen", gone, err
	case err != nil:
		return "", false, fmt.Errorf("reading node %s: %w", nc.Spec.TargetNode, err)
	}
	why = dead(node)
	if why == "" && replacement.Spec.NodeName == "" {
		why = m.closedTo(node, replacement)
	}
	return why, false, nil
}

// closedTo returns why a healthy node does not take a pod for now, whatever room it has; it is empty if it does. A node offers no
// real-time cores for a while when its agent, or its kubelet, restarts.
func (m *migrate) closedTo(node *corev1.Node, replacement *corev1.Pod) string {
	if node.Spec.Unschedulable {
		return "it is cordoned"
	}
	snapshot := m.Store.Snapshot()
	pod, known := snapshot.Pod(replacement.UID)
	if target, ok := snapshot.NodeView(node.Name); known && len(pod.Governed) > 0 && (!ok || !target.Offered) {
		return "its agent offers no cores"
	}
	return untolerated(node, replacement)
}

// lacks are kube-scheduler's words for a resource of which a node has not enough, and may not have for ever. The pod goes to one node
// only, so the words mean that node.
var lacks = []string{"Insufficient ", "Too many pods", "cannot allocate all claims", "didn't have free ports", "exceed max volume count", "did not have enough free storage"}

// roomless tells whether the scheduler has reported that a pod's node has no room for it. If the scheduler has not, as where none runs,
// the reason may be any other.
func roomless(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable &&
			slices.ContainsFunc(lacks, func(what string) bool { return strings.Contains(c.Message, what) })
	})
}

// lostWith says that a state is lost with its node.
func lostWith(nc *v1alpha1.NodeCheckpoint) string {
	return fmt.Sprintf("node %s is gone, and the pod's state with it", nc.Spec.TargetNode)
}

// awaitTarget waits for the node that has the state of a source that is gone, for as long as that is kept.
func (m *migrate) awaitTarget(ctx context.Context, task orchestration.Task, l handover) (rules.Result, error) {
	why, gone, err := m.away(ctx, l.nc, l.replacement)
	switch {
	case err != nil:
		return rules.Result{}, err
	case gone:
		return m.lose(ctx, task, l.nc, lostWith(l.nc))
	}
	return m.outOfTime(ctx, task, l, rules.Result{Message: fmt.Sprintf("pod %s/%s waits for node %s, which has its state: %s%s; to have it begin anew, delete NodeCheckpoint %s",
		l.replacement.Namespace, l.replacement.Name, l.nc.Spec.TargetNode, cmp.Or(why, "it has not taken it yet"), unschedulable(l.replacement), l.nc.Name)})
}

// outOfTime abandons the state when the time is over and the replacement has had as long as a restore takes. The replacement may have
// been created late, as no controller ran before, or started late. The time for which its node prevents the restore does not count: the
// node keeps the state, and Leftovers handles it afterwards. The same holds while the replacement is unschedulable for an unknown
// reason. A healthy node without room is no such reason: its pods may stay for ever. The pod starts anew then, unless a policy forbids
// that.
func (m *migrate) outOfTime(ctx context.Context, task orchestration.Task, l handover, result rules.Result) (rules.Result, error) {
	kept, err := m.keptFrom(ctx, task, l)
	if err != nil {
		return rules.Result{}, err
	}
	if kept {
		delete(task.Progress, progressUnkept)
	}
	late := !kept && m.since(task, progressUnkept) > toRestore(l.nc)
	switch {
	case !m.over(task):
	case late:
		return m.loseOrKeep(ctx, task, l, "the time is over: "+result.Message)
	case m.ends(task):
		return m.leave(l, "the time is over: "+result.Message), nil
	}
	return result, nil
}

// unsettled is what becomes of a pod in the source's place that has not proven itself.
func (m *migrate) unsettled(ctx context.Context, task orchestration.Task, l handover, result rules.Result) (rules.Result, error) {
	delete(task.Progress, progressEvidence)
	if result.Undo {
		return m.lose(ctx, task, l.nc, result.Message)
	}
	return m.outOfTime(ctx, task, l, result)
}

// keptFrom tells whether it is for what its node is, or for a policy, that a pod does not go on with a state: then that is kept.
func (m *migrate) keptFrom(ctx context.Context, task orchestration.Task, l handover) (bool, error) {
	if task.Progress[progressRestored] == string(l.replacement.UID) {
		return false, nil
	}
	why, gone, err := m.away(ctx, l.nc, l.replacement)
	switch {
	case err != nil || gone:
		return false, err
	case why != "":
		return true, nil
	case l.replacement.Spec.NodeName != "":
		return !everBegun(l.replacement) || waitsFor(l.replacement, passingly) != "", nil
	case !roomless(l.replacement):
		return true, nil
	}
	return m.required(ctx, l.replacement)
}

// required tells whether the pod's MigrationPolicy has it go on with its state or not at all.
func (m *migrate) required(ctx context.Context, pod *corev1.Pod) (bool, error) {
	p, err := m.Judge.For(ctx, pod)
	if err != nil {
		return false, fmt.Errorf("finding the MigrationPolicy of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return p != nil && p.Spec.RequireState, nil
}
