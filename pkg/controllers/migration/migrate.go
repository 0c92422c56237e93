// Package migration moves real-time pods to other nodes: where cores are reserved for a pod it is evicted, and what its
// owner makes in its place is followed until it runs with its cores.
//
// Every step may be repeated by another process: what is remembered is on the action's record before the step that it
// allows, evictions are of one UID, and what is reserved is reserved by the record itself.
package migration

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/eviction"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Entries of an action's progress, beside state.ProgressReserved.
const (
	// progressBefore is a before, in JSON. It is on record before the eviction is asked for.
	progressBefore = "before"
	// progressEvicted is when the pod was found to be evicted, as RFC 3339.
	progressEvicted = "evicted"
	// progressReplacement is the UID of the pod in its place.
	progressReplacement = "replacement"
)

// ending is how long before the end of an action's time it says itself where it hangs.
const ending = 2 * time.Second

// Dependencies are the collaborators of the executor. All are required.
type Dependencies struct {
	Clock clock.PassiveClock
	// Client writes, and reads from a cache; API asks the API server itself.
	Client client.Client
	API    client.Reader
	Store  *state.Store
	// Recorder is told what users may wonder about.
	Recorder orchestration.Recorder
	// Running are the actions of kind Migrate under way.
	Running   func() []*v1alpha1.RTAction
	Placement Placement
}

// New makes the executor of actions of kind Migrate.
func New(d Dependencies) orchestration.Executor { return &migrate{d} }

type migrate struct{ Dependencies }

// Step implements orchestration.Executor.
func (m *migrate) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if len(task.Object.Spec.Pods) != 1 {
		return m.several(task), nil
	}
	if err := m.Store.Synced(); err != nil { // what it does not show yet is not gone
		return rules.Result{}, err
	}
	pod, err := m.read(ctx, task.Object.Spec.Pods[0])
	if err != nil {
		return rules.Result{}, err
	}
	result, err := m.step(ctx, task, pod)
	if result.Outcome.Over() {
		m.Store.ReleaseMigration(task.Object.Name)
	}
	return count(result), err
}

// several ends an action that is not of one pod.
func (m *migrate) several(task orchestration.Task) rules.Result {
	if task.Undoing() {
		return rules.Result{Outcome: rules.RolledBack, Message: "nothing was done"}
	}
	return rules.Result{Undo: true, Message: fmt.Sprintf("pods: %d are named, and one is moved at a time", len(task.Object.Spec.Pods))}
}

func (m *migrate) step(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	_, evicting := task.Progress[progressBefore]
	if _, done := task.Progress[progressEvicted]; done {
		pod = nil
	}
	switch {
	case pod == nil && evicting:
		return m.follow(ctx, task)
	case task.Undoing() && !evicting:
		return rules.Result{Outcome: rules.RolledBack, Message: "it was not evicted"}, nil
	case task.Undoing():
		return rules.Result{Outcome: rules.RolledBack, Message: "the pod stays on node " + pod.Spec.NodeName}, nil
	case pod == nil:
		return rules.Result{Undo: true, Message: "the pod is gone, and nobody here has evicted it"}, nil
	}
	var first waiting
	switch veto, err := m.verify(ctx, task, pod); {
	case errors.As(err, &first):
		return rules.Result{Message: first.Error()}, nil
	case veto != "" || err != nil:
		return rules.Result{Undo: veto != "", Message: veto}, err
	}
	switch _, reserved := task.Progress[state.ProgressReserved]; {
	case !reserved:
		return m.reserve(task, pod)
	case !evicting:
		_, err := m.prepare(ctx, task, pod)
		return rules.Result{Message: "about to evict the pod"}, err
	}
	if more, err := m.prepare(ctx, task, pod); more || err != nil {
		return rules.Result{Message: "about to evict the pod; its owner has made others"}, err
	}
	return m.evict(ctx, task, pod)
}

// reserve keeps cores of the target for the pod. They are the same as before when this is repeated.
func (m *migrate) reserve(task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	target := task.Object.Spec.TargetNode
	m.Store.ReleaseMigration(task.Object.Name)
	snapshot := m.Store.Snapshot()
	to, ok := snapshot.Destination(pod.UID, func(n *state.NodeView) bool { return n.Name == target })
	if !ok {
		return rules.Result{Undo: true, Message: fmt.Sprintf("no cores of node %s take all containers of the pod", target)}, nil
	}
	room := state.Migration{Node: to.Node}
	view, _ := snapshot.Pod(pod.UID)
	for _, g := range view.Governed {
		if core, ok := to.Cores[g.Server.ID]; ok {
			room.Cores = append(room.Cores, state.MigrationShare{Core: core, Server: g.Server})
		}
	}
	refused := &state.RefusedError{}
	switch err := m.Store.ReserveAll(room.Reservations(task.Object.Name)); {
	case errors.As(err, &refused):
		return rules.Result{Undo: true, Message: err.Error()}, nil
	case err != nil:
		return rules.Result{}, err
	}
	text, err := room.Encode()
	if err != nil {
		return rules.Result{}, err
	}
	task.Progress[state.ProgressReserved] = text
	return rules.Result{Message: fmt.Sprintf("reserved cores of node %s", target)}, nil
}

// evict asks the API server to evict this very pod, if the target still has the room for it. A budget that forbids it, or
// several between which the API server does not choose, are waited for.
func (m *migrate) evict(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	room, err := state.ParseMigration(task.Progress[state.ProgressReserved])
	if err != nil {
		return rules.Result{}, err
	}
	refused := &state.RefusedError{}
	if err := m.Store.ReserveAll(room.Reservations(task.Object.Name)); errors.As(err, &refused) {
		return rules.Result{Undo: true, Message: "the room is gone: " + err.Error()}, nil
	}
	answer, err := eviction.Ask(ctx, m.Client, pod)
	if answer.Refused() {
		m.Recorder.Publish(events.MigrationWaits(pod, string(pod.UID), answer.Why, task.Object.Name))
	}
	switch {
	case err != nil:
		return rules.Result{}, err
	case answer.Verdict == eviction.Later:
		return rules.Result{Message: "the pod may not be evicted yet: " + answer.Why}, nil
	case answer.Verdict == eviction.Never:
		return rules.Result{Undo: true, Message: "the pod may not be evicted: " + answer.Why}, nil
	case answer.Verdict == eviction.Gone:
		return rules.Result{}, nil
	}
	task.Progress[progressEvicted] = m.Clock.Now().UTC().Format(time.RFC3339Nano)
	m.tell(pod, func(on about) events.Event {
		return events.Migrating(on.Object, on.uid, on.pod, pod.Spec.NodeName, task.Object.Spec.TargetNode, task.Object.Name)
	})
	return rules.Result{Message: "evicted the pod"}, nil
}
