package migration

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// vetoed is why an action is not done.
type vetoed string

func (v vetoed) Error() string { return string(v) }

// Passage is how a pod would go to another node by an action for which there is no PodMigration.
type Passage struct {
	Strategy v1alpha1.MigrationStrategy
	// Anywhere: the same goes for every node.
	Anywhere bool
	// Stateless is why it would begin anew, though its state was to come along; Bound: it goes with its state or not at all.
	Stateless string
	Bound     bool
	// Veto is why it must not go; empty: it may.
	Veto string
	// Timeout is how long that may take.
	Timeout time.Duration
}

// Passage is how a pod would go to a node that has room for it, or, without node, to any that can take its state. What only the API
// server knows is asked when the migration is done.
func (d Dependencies) Passage(ctx context.Context, view *state.PodView, node string) (Passage, error) {
	pod := &corev1.Pod{}
	err := d.Client.Get(ctx, view.Key(), pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != view.UID {
		return Passage{Veto: "the pod is gone"}, nil
	}
	if err != nil {
		return Passage{}, fmt.Errorf("reading pod %s: %w", view.Key(), err)
	}
	q, err := d.toSettle(ctx, pod, view, node)
	if err != nil {
		return Passage{}, err
	}
	q.planned = true
	anywhere, choose := true, towards(d.Store.Snapshot())
	w, no, err := d.find(ctx, q, func(ctx context.Context, q question, only func(*state.Snapshot, string) string) (string, *refusal, error) {
		anywhere = anywhere && only == nil
		return choose(ctx, q, only)
	})
	switch {
	case err != nil:
		return Passage{}, err
	case no != nil:
		return Passage{Veto: no.message, Anywhere: anywhere}, nil
	}
	return Passage{Anywhere: anywhere, Strategy: w.strategy, Stateless: w.stateless, Bound: w.bound, Timeout: needed(w.strategy, pod)}, nil
}

// toSettle is the question about a pod that goes to a node that was already chosen.
func (d Dependencies) toSettle(ctx context.Context, pod *corev1.Pod, view *state.PodView, node string) (question, error) {
	rule, err := d.Judge.For(ctx, pod)
	if err != nil {
		return question{}, err
	}
	q := question{object: &v1alpha1.PodMigration{}, pod: pod, view: view, policy: rule, asked: node, settled: true}
	if isReplicaSet(pod) {
		q.set, err = d.replicaSet(ctx, pod)
	}
	return q, err
}

// towards takes the node that was chosen, if it does what is asked for: that it has room others see to.
func towards(s *state.Snapshot) chooser {
	return func(_ context.Context, q question, only func(*state.Snapshot, string) string) (string, *refusal, error) {
		if only != nil && q.asked != "" {
			if why := only(s, q.asked); why != "" {
				return "", &refusal{ReasonTargetRefused, why}, nil
			}
		}
		return q.asked, nil, nil
	}
}

// chooseWay has the pod of an action for which there was no PodMigration go the way that one for the same would.
func (m *migrate) chooseWay(ctx context.Context, task orchestration.Task) error {
	pod, err := m.read(ctx, m.Client, task.Object.Spec.Pods[0])
	if err != nil {
		return err
	}
	if pod == nil { // which is told of on any way
		task.Progress[progressStrategy] = cmp.Or(task.Progress[progressStrategy], string(v1alpha1.StrategyRestart))
		return nil
	}
	snapshot := m.Store.Snapshot()
	view, known := snapshot.Pod(pod.UID)
	if !known {
		return waiting("waits until the pod is seen")
	}
	q, err := m.toSettle(ctx, pod, view, task.Object.Spec.TargetNode)
	if err != nil {
		return err
	}
	q.alone = !task.Object.Spec.Beside
	w, no, err := m.find(ctx, q, towards(snapshot))
	if err != nil {
		return err
	}
	if no == nil && task.Object.Spec.Beside && w.strategy != v1alpha1.StrategySurge {
		no = &refusal{ReasonSurgeImpossible, "another pod was to serve before it goes, and for that none may: it is to be asked for anew"}
	}
	if no != nil {
		return m.veto(ctx, task, no)
	}
	return m.take(ctx, task, w)
}

// veto ends an action before anything is done, and says on its record why.
func (m *migrate) veto(ctx context.Context, task orchestration.Task, no *refusal) error {
	if err := m.enter(ctx, task, v1alpha1.MigrationPending, func(s *v1alpha1.PodMigrationStatus) {
		setCondition(s, v1alpha1.ConditionMigrationAdmitted, metav1.ConditionFalse, no.reason, no.message, m.Clock.Now())
	}); err != nil {
		return err
	}
	return vetoed(no.message)
}

// take remembers the way, and says on the record what becomes of the pod's state where that was to come along.
func (m *migrate) take(ctx context.Context, task orchestration.Task, w way) error {
	was := v1alpha1.MigrationStrategy(task.Progress[progressStrategy]) == v1alpha1.StrategyCheckpoint || task.Progress[progressStateless] != ""
	task.Progress[progressStrategy] = string(w.strategy)
	delete(task.Progress, progressStateless)
	if w.stateless != "" {
		task.Progress[progressStateless] = "true"
	}
	if w.stateless == "" && w.strategy != v1alpha1.StrategyCheckpoint && !was { // nothing is said of a state that need not come along
		return nil
	}
	return m.enter(ctx, task, v1alpha1.MigrationPending, func(s *v1alpha1.PodMigrationStatus) { tellState(s, w, m.Clock.Now()) })
}
