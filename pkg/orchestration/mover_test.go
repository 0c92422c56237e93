package orchestration_test

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// mover does actions in two effects: it takes what the action is done to in hand, and evicts the pods through the API
// server, which cannot be undone. It watches over what the queue promises.
type mover struct{ *process }

// Step implements orchestration.Executor.
func (m *mover) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	how := m.conduct[task.Object.Spec.Reason]
	switch {
	case how.failing != nil:
		return rules.Result{}, how.failing
	case task.Undoing():
		return m.undo(task, how)
	case task.Progress["taken"] == "":
		if err := m.effect(task, "take", func() { m.hands(task.Object, m.take) }); err != nil {
			return rules.Result{}, err
		}
		task.Progress["taken"] = "yes"
		return rules.Result{Message: "taken in hand"}, nil
	case how.givesUp:
		return rules.Result{Undo: true, Message: "there is no room"}, nil
	case how.hangs:
		m.looks++
		return rules.Result{Message: fmt.Sprintf("nothing happens, for the %d. time", m.looks)}, nil
	}
	err := m.effect(task, "finish", func() {
		m.evict(ctx, task)
		m.hands(task.Object, func(what, action string, _ bool) { m.drop(what, action) })
		if !slices.Contains(m.done["action"], task.Object.Name) {
			m.done["action"] = append(m.done["action"], task.Object.Name)
		}
	})
	return rules.Result{Outcome: rules.Succeeded, Message: "done"}, err
}

// undo lets go, unless all is done.
func (m *mover) undo(task orchestration.Task, how conduct) (rules.Result, error) {
	if slices.Contains(m.done["action"], task.Object.Name) {
		return rules.Result{Outcome: rules.Succeeded, Message: "it was done already"}, nil
	}
	if how.clings {
		return rules.Result{}, nil
	}
	err := m.effect(task, "undo", func() {
		m.hands(task.Object, func(what, action string, _ bool) { m.drop(what, action) })
	})
	return rules.Result{Outcome: rules.RolledBack}, err
}

// effect changes the world. It must be covered by what is stored at that moment.
func (m *mover) effect(task orchestration.Task, what string, do func()) error {
	stored := m.action(task.Object.Name)
	switch {
	case stored == nil:
		m.Errorf("%s for %s, of which there is no record", what, task.Object.Spec.Reason)
	case m.dead:
	case !rules.Phase(stored.Status.Phase).Holds():
		m.Errorf("%s for %s, which is %s", what, task.Object.Spec.Reason, stored.Status.Phase)
	}
	return m.point(func() error {
		if what == "take" && m.past(task.Object.Name) {
			return nil // it is late, and the world has moved on
		}
		do()
		if effect := what + " " + task.Object.Name; !slices.Contains(m.effects, effect) {
			m.effects = append(m.effects, effect)
		}
		return nil
	})
}

// past tells whether what was done for an action was finished or undone.
func (m *mover) past(action string) bool {
	return slices.Contains(m.effects, "finish "+action) || slices.Contains(m.effects, "undo "+action)
}

// hands calls f for everything that the action is done to.
func (m *mover) hands(o *v1alpha1.RTAction, f func(what, action string, shared bool)) {
	for _, p := range o.Spec.Pods {
		f("Pod "+p.Name, o.Name, false)
	}
	if o.Spec.Node != "" {
		f("Node "+o.Spec.Node, o.Name, rules.Kind(o.Spec.Kind) != rules.Rearrange && rules.Kind(o.Spec.Kind) != rules.ReplaceNode)
	}
}

// evict asks the API server. It knows what PodDisruptionBudgets allow: the queue must not have it refuse.
func (m *mover) evict(ctx context.Context, task orchestration.Task) {
	if task.Action.Kind == rules.Rearrange {
		return
	}
	for _, p := range task.Object.Spec.Pods {
		eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
		err := m.api.SubResource("eviction").Create(ctx, pod, eviction)
		if apierrors.IsTooManyRequests(err) {
			m.Errorf("%s was started beyond a budget: %v", task.Object.Spec.Reason, err)
		}
		_ = client.IgnoreNotFound(err) // repeated
	}
}
