package migration

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
)

// Placement tells where pods would be placed (pkg/placement).
type Placement interface {
	// Refusal is why pods would not all be placed on a node beside what is there; empty: they would.
	Refusal(ctx context.Context, node string, pods []*corev1.Pod) (string, error)
}

// waiting is what has to be waited for before it can be told whether a pod may be evicted.
type waiting string

// Error implements error.
func (w waiting) Error() string { return string(w) }

// unplaced is why the pod would not be placed on the target, beside those that are on their way there before it; empty: it would.
func (m *migrate) unplaced(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (veto string, err error) {
	pods := []*corev1.Pod{pod}
	for _, other := range m.Running() {
		if !ahead(other, task.Object) {
			continue
		}
		coming, err := m.coming(ctx, other)
		if err != nil {
			return "", err
		}
		pods = append(pods, coming...)
	}
	why, err := m.Placement.Refusal(ctx, task.Object.Spec.TargetNode, pods)
	if why != "" {
		why = fmt.Sprintf("node %s has no place for the pod: %s", task.Object.Spec.TargetNode, why)
	}
	return why, err
}

// ahead tells whether an action goes to the same node and is served first: it evicts already, or is older.
func ahead(other, mine *v1alpha1.RTAction) bool {
	if other.Name == mine.Name || other.Spec.TargetNode != mine.Spec.TargetNode || len(other.Spec.Pods) != 1 {
		return false
	}
	_, theirs := other.Status.Progress[progressBefore]
	_, ours := mine.Status.Progress[progressBefore]
	if theirs != ours {
		return theirs
	}
	if !other.CreationTimestamp.Equal(&mine.CreationTimestamp) {
		return other.CreationTimestamp.Before(&mine.CreationTimestamp)
	}
	return other.Name < mine.Name
}

// coming are the pods of an action that have no node on its target yet: the pod that it moves, or, after the eviction, the owner's pods
// that the scheduler has not bound. While the owner has created none, what will come is unknown. After half the action's time, coming
// assumes that none will. The cache is good enough: reservations protect cores, and the scheduler does the rest.
func (m *migrate) coming(ctx context.Context, other *v1alpha1.RTAction) ([]*corev1.Pod, error) {
	moved := other.Spec.Pods[0]
	if makesTwin(other) {
		twin, err := m.copied(ctx, m.Client, orchestration.Task{Object: other, Progress: other.Status.Progress})
		if err != nil || twin != nil {
			return unplacedOf(twin), err
		}
	}
	if pod, err := m.read(ctx, m.Client, moved); err != nil || pod != nil {
		return []*corev1.Pod{pod}, err
	}
	b, err := recorded(other.Status.Progress)
	if err != nil || b == nil {
		return nil, err
	}
	pods, err := m.siblings(ctx, m.Client, moved.Namespace, b.Owner)
	if err != nil {
		return nil, err
	}
	return m.made(other, *b, pods)
}

// made are the pods in the place of an evicted one that the scheduler has not bound.
func (m *migrate) made(other *v1alpha1.RTAction, b before, pods []corev1.Pod) ([]*corev1.Pod, error) {
	moved, made := other.Spec.Pods[0], false
	var out []*corev1.Pod
	for i := range pods {
		p := &pods[i]
		if of := p.Annotations[mcv1.AnnotationReplaces]; of != string(moved.UID) && (of != "" || !b.later(p)) {
			continue
		}
		made = true
		if p.Spec.NodeName == "" {
			out = append(out, p)
		}
	}
	if !made && !m.tardy(other) {
		return nil, waiting(fmt.Sprintf("waits for %s %s to make the pod that goes to node %s before it", b.Owner.Kind, b.Owner.Name, other.Spec.TargetNode))
	}
	return out, nil
}

// tardy tells whether this process has waited for half an action's time for its owner to recreate a pod. The owner's pod may then be
// none of its own any longer.
func (m *migrate) tardy(other *v1alpha1.RTAction) bool {
	return m.watches.awaited(other.Name, m.Clock.Now()) > other.Spec.Timeout.Duration/2
}

// makesTwin tells whether an action has a copy of the pod run beside it.
func makesTwin(o *v1alpha1.RTAction) bool {
	switch v1alpha1.MigrationStrategy(o.Status.Progress[progressStrategy]) {
	case v1alpha1.StrategySurge, v1alpha1.StrategyCheckpoint, strategyRemake:
		return true
	}
	return false
}

// unplacedOf is a pod, if it is there and has no node.
func unplacedOf(pod *corev1.Pod) []*corev1.Pod {
	if pod == nil || pod.Spec.NodeName != "" {
		return nil
	}
	return []*corev1.Pod{pod}
}

// place tells whether a pod of the owner has the place of the evicted one, if its owner distinguishes places: a StatefulSet by names, an
// Indexed Job by indexes.
func (b before) place(name string, p *corev1.Pod) bool {
	return (b.Owner.Kind != "StatefulSet" || p.Name == name) && p.Annotations[batchv1.JobCompletionIndexAnnotation] == b.Index
}

// later tells whether a pod was made after what there was before.
func (b before) later(p *corev1.Pod) bool {
	return b.Newest.Before(&p.CreationTimestamp) || p.CreationTimestamp.Equal(&b.Newest) && !slices.Contains(b.Of, p.UID)
}
