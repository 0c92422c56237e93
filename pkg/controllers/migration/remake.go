package migration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/eviction"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// strategyRemake is Restart for a pod that no owner recreates. The controller stores its copy before the source goes, and lets the copy
// run once the source is gone. So the pod is never lost, and never runs twice.
const strategyRemake v1alpha1.MigrationStrategy = "Remake"

func (m *migrate) remake(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, error) {
	twin, err := m.twinOf(ctx, task)
	if err != nil {
		return rules.Result{}, err
	}
	_, evicting := task.Progress[progressCut]
	if _, done := task.Progress[progressEvicted]; done {
		source = nil
	}
	switch {
	case evicting && source == nil:
		return m.let(ctx, task, twin)
	case task.Undoing():
		return m.undo(ctx, task, source)
	case source == nil:
		return rules.Result{Undo: true, Message: "the pod is gone, and nobody here has evicted it"}, nil
	case twin == nil:
		return m.prepareTwin(ctx, task, source, m.store)
	case !evicting:
		m.markCut(task)
		return rules.Result{Message: "about to evict the pod"}, nil
	}
	return m.evict(ctx, task, source)
}

// store makes the copy, which waits behind a gate.
func (m *migrate) store(ctx context.Context, task orchestration.Task, source *corev1.Pod) (rules.Result, error) {
	if err := m.enter(ctx, task, v1alpha1.MigrationRestoring, describe(task, source)); err != nil {
		return rules.Result{}, err
	}
	twin := ofPod(task, source)
	twin.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateMigration}}
	if veto, err := m.create(ctx, task, twin); veto != "" || err != nil {
		return rules.Result{Undo: veto != "", Message: veto}, err
	}
	return rules.Result{Message: fmt.Sprintf("stored pod %s/%s, which is to run in its place", twin.Namespace, twin.Name)}, nil
}

// let has the copy run once nothing is left of the source.
func (m *migrate) let(ctx context.Context, task orchestration.Task, twin *corev1.Pod) (rules.Result, error) {
	if err := m.findEvicted(ctx, task); err != nil {
		return rules.Result{}, err
	}
	left, err := m.left(ctx, task.Object.Spec.Pods[0])
	switch {
	case err != nil:
		return rules.Result{}, err
	case twin == nil:
		return rules.Result{Outcome: rules.Failed, Message: "the pod was evicted, and somebody has deleted the one in its place"}, nil
	case left && m.over(task):
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("the pod was evicted, and has not ended in time; pod %s/%s runs once nothing is left of it", twin.Namespace, twin.Name)}, nil
	case left:
		return rules.Result{Message: "the pod was evicted; waits until it has ended"}, nil
	case gated(twin):
		return m.release(ctx, task, twin)
	}
	if err := m.enter(ctx, task, v1alpha1.MigrationVerifying, arriving(twin)); err != nil {
		return rules.Result{}, err
	}
	if twin.Spec.NodeName == "" {
		return m.late(task, rules.Result{Message: fmt.Sprintf("pod %s/%s waits for a node%s", twin.Namespace, twin.Name, unschedulable(twin))}), nil
	}
	if err := m.hand(task); err != nil {
		return rules.Result{}, err
	}
	evidence, why := m.prove(task, twin)
	if why != "" {
		return m.late(task, rules.Result{Message: why}), nil
	}
	task.Progress[progressEvidence] = evidence
	return m.arrived(task, twin), nil
}

// late ends what has taken too long after the point of no return, and says where it hangs.
func (m *migrate) late(task orchestration.Task, r rules.Result) rules.Result {
	if !m.over(task) {
		return r
	}
	return rules.Result{Outcome: rules.Failed, Message: "the pod was evicted, and the time is over: " + r.Message}
}

// left tells whether anything is left of a pod, be it about to end. That nothing is, only the API server may say.
func (m *migrate) left(ctx context.Context, named v1alpha1.ActionPod) (bool, error) {
	for _, from := range []client.Reader{m.Client, m.API} {
		pod := &corev1.Pod{}
		err := from.Get(ctx, types.NamespacedName{Namespace: named.Namespace, Name: named.Name}, pod)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading pod %s/%s: %w", named.Namespace, named.Name, err)
		}
		if err == nil && pod.UID == named.UID {
			return true, nil
		}
	}
	return false, nil
}

func gated(pod *corev1.Pod) bool {
	for _, g := range pod.Spec.SchedulingGates {
		if g.Name == v1alpha1.GateMigration {
			return true
		}
	}
	return false
}

// release takes the gate off a pod in the source's place, which from then on may run on the target and nowhere else. When
// the target takes nothing any longer the scheduler may choose.
func (m *migrate) release(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	after := pod.DeepCopy()
	ungate(after)
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	after.Annotations[annotationReplaces] = string(task.Object.Spec.Pods[0].UID)
	target, where := task.Object.Spec.TargetNode, "where the scheduler puts it"
	if _, free := task.Progress[progressFree]; !free && target != "" {
		shut, err := m.closed(ctx, target)
		if err != nil {
			return rules.Result{}, err
		}
		if shut == "" {
			where = "on node " + target
			v1alpha1.Pin(after, target)
		}
	}
	if err := m.Client.Patch(ctx, after, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); err != nil {
		return rules.Result{}, fmt.Errorf("letting pod %s/%s run: %w", pod.Namespace, pod.Name, err)
	}
	*pod = *after
	return rules.Result{Message: fmt.Sprintf("pod %s/%s may run %s", pod.Namespace, pod.Name, where)}, nil
}

func ungate(pod *corev1.Pod) {
	var others []corev1.PodSchedulingGate
	for _, g := range pod.Spec.SchedulingGates {
		if g.Name != v1alpha1.GateMigration {
			others = append(others, g)
		}
	}
	pod.Spec.SchedulingGates = others
}

// evictedBy reports the outcome of a request to evict the source.
func (m *migrate) evictedBy(task orchestration.Task, pod *corev1.Pod, answer eviction.Answer) rules.Result {
	if answer.Refused() {
		m.Recorder.Publish(events.MigrationWaits(pod, string(pod.UID), answer.Why, task.Object.Name))
	}
	switch answer.Verdict {
	case eviction.Later:
		return rules.Result{Message: "the pod may not be evicted yet: " + answer.Why}
	case eviction.Never:
		return rules.Result{Undo: true, Message: "the pod may not be evicted: " + answer.Why}
	case eviction.Gone:
		return rules.Result{}
	}
	m.markEvicted(task)
	name := pod.Namespace + "/" + pod.Name // its McKube is told when it is done
	room, err := state.ParseMigration(task.Progress[state.ProgressReserved])
	m.Recorder.Publish(events.Migrating(pod, string(pod.UID), name, pod.Spec.NodeName, task.Object.Spec.TargetNode, task.Object.Name, err == nil && len(room.Cores) > 0))
	return rules.Result{Message: "evicted the pod"}
}
