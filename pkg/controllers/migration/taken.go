package migration

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// owned tells whether a copy has an owner.
func owned(twin *corev1.Pod) bool { return twin != nil && metav1.GetControllerOf(twin) != nil }

// untaken tells whether the migration is rolled back as no ReplicaSet adopts its copy, and the copy has had no owner since.
func untaken(task orchestration.Task, twin *corev1.Pod) bool {
	return task.Progress[progressUntaken] != "" && !owned(twin)
}

// taken tells whether a copy that was handed over has an owner: only then has the migration succeeded. If the cache shows none, taken
// asks the API server. If no ReplicaSet is there to adopt the copy, as a user deleted it meanwhile, the migration is rolled back: else a
// pod would run on without an owner. A copy that was restored stays, as its state is nowhere else.
func (m *migrate) taken(ctx context.Context, task orchestration.Task, twin *corev1.Pod) (rules.Result, bool, error) {
	if !adopted(twin) || owned(twin) {
		return rules.Result{}, true, nil
	}
	now, err := m.copied(ctx, m.API, task)
	if err != nil || owned(now) {
		return rules.Result{}, err == nil, err
	}
	taker, err := m.taker(ctx, twin)
	if err != nil {
		return rules.Result{}, false, err
	}
	runs := fmt.Sprintf("pod %s/%s runs on node %s", twin.Namespace, twin.Name, twin.Spec.NodeName)
	const noOwner = "the ReplicaSet that made its source is gone, and no other takes it: nobody owns it"
	switch {
	case taker == nil && v1alpha1.MigrationStrategy(task.Progress[progressStrategy]) == v1alpha1.StrategyCheckpoint:
		return rules.Result{Outcome: rules.Failed, Message: runs + " with its state; " + noOwner}, false, nil
	case taker == nil:
		task.Progress[progressUntaken] = noOwner
		return rules.Result{Undo: true, Message: runs + "; " + noOwner}, false, nil
	case m.ends(task):
		return rules.Result{Outcome: rules.Failed, Message: fmt.Sprintf("%s, and ReplicaSet %s has not taken it for its own", runs, taker.Name)}, false, nil
	}
	return rules.Result{Message: fmt.Sprintf("%s; waits until ReplicaSet %s takes it for its own", runs, taker.Name)}, false, nil
}

// taker is the ReplicaSet that will adopt a pod, as the API server says: mostly the one that created the source, or one that its
// Deployment has created in the place of that. It is nil if there is none.
func (m *migrate) taker(ctx context.Context, pod *corev1.Pod) (*appsv1.ReplicaSet, error) {
	list := &appsv1.ReplicaSetList{}
	if err := m.API.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
		return nil, fmt.Errorf("listing ReplicaSets of namespace %s: %w", pod.Namespace, err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
		if err == nil && o.DeletionTimestamp == nil && selector.Matches(labels.Set(pod.Labels)) {
			return o, nil
		}
	}
	return nil, nil
}
