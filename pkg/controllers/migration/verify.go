package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// read finds a pod that still exists under its UID and is not ending; nil when it does not.
func (m *migrate) read(ctx context.Context, from client.Reader, named v1alpha1.ActionPod) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := from.Get(ctx, types.NamespacedName{Namespace: named.Namespace, Name: named.Name}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pod %s/%s: %w", named.Namespace, named.Name, err)
	case pod.UID != named.UID || pod.DeletionTimestamp != nil:
		return nil, nil
	}
	return pod, nil
}

// verify is why the pod must not leave, as things are now; empty: it may.
func (m *migrate) verify(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (veto string, err error) {
	spec, snapshot := task.Object.Spec, m.Store.Snapshot()
	view, known := snapshot.Pod(pod.UID)
	strategy := v1alpha1.MigrationStrategy(task.Progress[progressStrategy])
	switch {
	case spec.TargetNode == pod.Spec.NodeName, spec.TargetNode == "" && strategy != v1alpha1.StrategyEvict:
		return fmt.Sprintf("targetNode: %q is not another node than %q", spec.TargetNode, pod.Spec.NodeName), nil
	case spec.Node != "" && pod.Spec.NodeName != spec.Node:
		return fmt.Sprintf("the pod is on node %q, not on %q", pod.Spec.NodeName, spec.Node), nil
	case finished(pod):
		return "the pod has finished", nil
	case !known:
		return "", waiting("waits until the pod is seen")
	}
	if m := immovable(view); m != nil {
		return fmt.Sprintf("McKube %s says migration.policy Never", m.Name), nil
	}
	if why := view.LosesBudget(); why != "" && renames(strategy, pod) {
		return why, nil
	}
	return m.unowned(ctx, task, pod)
}

// renames tells whether the replacement has another name than the source although its owner does not name it. A user who asks for Evict
// gets an eviction.
func renames(by v1alpha1.MigrationStrategy, source *corev1.Pod) bool {
	return by != v1alpha1.StrategyEvict && (by != v1alpha1.StrategyCheckpoint || !needsHandover(metav1.GetControllerOf(source)))
}

// declined is why the target does not take the pod, as things are now; empty: it does.
func (m *migrate) declined(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (veto string, err error) {
	target, snapshot := task.Object.Spec.TargetNode, m.Store.Snapshot()
	view, known := snapshot.Pod(pod.UID)
	if target == "" || !known {
		return "", nil
	}
	if veto, err := m.unfit(ctx, snapshot, target, view); veto != "" || err != nil {
		return veto, err
	}
	return m.unplaced(ctx, task, pod)
}

// fit tells whether the pod may leave and the target takes it. What ends, or puts off, the migration where not is the result.
func (m *migrate) fit(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (r rules.Result, ok bool, err error) {
	var first waiting
	for _, ask := range []func(context.Context, orchestration.Task, *corev1.Pod) (string, error){m.verify, m.still, m.denied} {
		switch veto, err := ask(ctx, task, pod); {
		case errors.As(err, &first):
			return rules.Result{Message: first.Error()}, false, nil
		case veto != "" || err != nil:
			return rules.Result{Undo: veto != "", Message: veto}, false, err
		}
	}
	switch veto, err := m.declined(ctx, task, pod); {
	case errors.As(err, &first):
		return rules.Result{Message: first.Error()}, false, nil
	case err != nil:
		return rules.Result{}, false, err
	case veto != "":
		return elsewhere(task, veto), false, nil
	}
	return rules.Result{}, true, nil
}

// elsewhere undoes what another target may do for.
func elsewhere(task orchestration.Task, why string) rules.Result {
	task.Progress[v1alpha1.ProgressElsewhere] = task.Object.Spec.TargetNode
	return rules.Result{Undo: true, Message: why}
}

// unowned returns why no owner would recreate the pod, where that is needed. What its owner wants is asked just before the eviction.
func (m *migrate) unowned(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (string, error) {
	_, about := task.Progress[progressBefore]
	owner := ownerOf(pod)
	switch {
	case owner == nil && bearsNoOwner(v1alpha1.MigrationStrategy(task.Progress[progressStrategy])):
		return "", nil
	case owner != nil && owner.Kind != "DaemonSet" && owner.Kind != "Node" && !about:
		return "", nil
	}
	return m.orphan(ctx, pod)
}

// bearsNoOwner tells whether a strategy can move a pod that no owner recreates.
func bearsNoOwner(s v1alpha1.MigrationStrategy) bool {
	return s == strategyRemake || s == v1alpha1.StrategyCheckpoint
}

// unfit is why a node does not take the pod, resources and neighbours apart; empty: it does. For a governed pod cores are
// asked for elsewhere.
func (d Dependencies) unfit(ctx context.Context, snapshot *state.Snapshot, node string, pod *state.PodView) (string, error) {
	target, realtime := snapshot.NodeView(node)
	switch {
	case len(pod.Governed) > 0 && !realtime:
		return fmt.Sprintf("node %s has no real-time cores", node), nil
	case len(pod.Governed) > 0:
		if accepted, why := snapshot.Accepts(target, pod); !accepted {
			return fmt.Sprintf("node %s does not accept the pod: %s", node, why), nil
		}
		return "", nil
	}
	why, err := d.closed(ctx, node)
	if why != "" {
		why = fmt.Sprintf("node %s does not accept the pod: %s", node, why)
	}
	return why, err
}

// closed is why nothing new may go to a node; empty: it may.
func (d Dependencies) closed(ctx context.Context, name string) (string, error) {
	return d.nodeVeto(ctx, name, shut)
}

// nodeVeto is why a node will not do, for one reason or as it is gone; empty: it will.
func (d Dependencies) nodeVeto(ctx context.Context, name string, veto func(*corev1.Node) string) (string, error) {
	node := &corev1.Node{}
	err := d.Client.Get(ctx, types.NamespacedName{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return "the node is gone", nil
	case err != nil:
		return "", fmt.Errorf("reading node %s: %w", name, err)
	}
	return veto(node), nil
}

// shut is why nothing new may go to a node; empty: it may.
func shut(node *corev1.Node) string {
	if node.DeletionTimestamp == nil && node.Spec.Unschedulable {
		return "the node is cordoned"
	}
	return dead(node)
}

// dead returns why a pod on a node will not stay there, or does not serve; it is empty if it does.
func dead(node *corev1.Node) string {
	switch {
	case node.DeletionTimestamp != nil:
		return "the node is being deleted"
	case !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}):
		return "the node is not ready"
	}
	return ""
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// immovable is a McKube that does not let the pod migrate; nil: there is none.
func immovable(pod *state.PodView) *mcv1.McKube {
	for _, g := range pod.Governed {
		if asked := g.McKube.Spec.Migration; asked != nil && asked.Policy == mcv1.MigrationNever {
			return g.McKube
		}
	}
	return nil
}
