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
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Entries of an action's progress, beside state.ProgressReserved and v1alpha1.ProgressElsewhere.
const (
	// progressMigration is the name of the PodMigration, progressStrategy how the pod goes.
	progressMigration = "migration"
	progressStrategy  = "strategy"
	// progressDecision is, in JSON, the decision of the policy on an action that had no PodMigration.
	progressDecision = "decision"
	// progressBefore is a before, in JSON. It is on record before the eviction is asked for.
	progressBefore = "before"
	// progressEvicted is when the pod was evicted, as RFC 3339. Where progressUntimed says that this is unknown, it is when the
	// controller found out.
	progressEvicted = "evicted"
	progressUntimed = "untimed"
	// progressUngated is since when nothing has the pod that the owner makes wait for its place.
	progressUngated = "ungated"
	// progressTwin is the name of the copy that was made.
	progressTwin = "copy"
	// progressCut is since when nothing can be undone any longer, as RFC 3339.
	progressCut = "cut"
	// progressUntaken is why no ReplicaSet will ever own a copy that was handed over.
	progressUntaken = "untaken"
	// progressReplacement is the UID of the pod in its place, of which progressFree says that it may be on any node.
	progressReplacement = "replacement"
	progressFree        = "free"
	// progressEvidence is, in words, what a watch over the pod in its place has shown.
	progressEvidence = "evidence"
	// progressStateless: the pod was to take its state along, and begins anew.
	progressStateless = "stateless"
	// progressGuard is since when the controller waits until the owner is kept from creating pods. progressTemplate is the PodTemplate of
	// the replacement that takes the source's name. progressRefused is since when the source's eviction is refused. progressFailing is
	// since when steps fail while the source is stopped.
	progressGuard    = "guard"
	progressTemplate = "heir"
	progressRefused  = "refused"
	progressFailing  = "failing"
	// progressForbidden is since when the API server refuses the replacement. progressUnkept is since when nothing keeps it from being
	// restored. progressRestored is its UID, once it was. progressEnded is since when it has ended before that was known. progressMade is
	// when it was last created. progressFull is since when its node, which is healthy, does not let it start.
	progressForbidden = "forbidden"
	progressUnkept    = "unkept"
	progressRestored  = "borne"
	progressEnded     = "ended"
	progressMade      = "made"
	progressFull      = "full"
	// progressHanded is what was reserved until that pod had it.
	progressHanded = "handed"
	// progressReleased: that pod has proven itself. progressLost is why its state is lost, progressGone: nothing is left of that pod.
	progressReleased = "released"
	progressLost     = "lost"
	progressGone     = "gone"
	// progressServed is the UID of a copy that was ready with the state, progressUnfit what it has not shown in its time since.
	progressServed = "served"
	progressUnfit  = "unfit"
	// progressEmptied is why the source has nothing in memory any longer. progressForfeited is why that is lost, as no pod is restored
	// from it.
	progressEmptied   = "emptied"
	progressForfeited = "forfeited"
	// progressTolerance is how long the source may stand still before a liveness probe ends it.
	progressTolerance = "tolerance"
	// progressStopped is since when the source stands still: its agent may forget that once the source is gone.
	progressStopped = "stopped"
	// progressThreads are, in JSON, how many threads of a real-time policy its containers had then.
	progressThreads = "threads"
	// progressRoom is since when it waits for room that another action has twice.
	progressRoom = "room"
	// progressDown is for how long neither pod served.
	progressDown = "unavailable"
)

// ending is how long before the end of an action's time it says itself where it hangs.
const ending = 2 * time.Second

// annotationReplaces is, on a pod, the UID of the one in whose place it is.
const annotationReplaces = mcv1.AnnotationReplaces

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
	// Judge says what policy says.
	Judge Judge
	// Namespaces are those whose pods are moved; nil: all are. In others the controller may have no right to make a pod.
	Namespaces sets.Set[string]
	// Checkpointing: strategy Checkpoint may be used.
	Checkpointing bool
	// Gating: the controller serves the webhook that has an owner's new pod wait for its place.
	Gating bool
	// Evicting has room for one: only one pod of a Job is evicted at a time, whichever loop requests that.
	Evicting chan struct{}
}

// New makes the executor of actions of kind Migrate.
func New(d Dependencies) orchestration.Executor { return newMigrate(d) }

func newMigrate(d Dependencies) *migrate {
	return &migrate{
		Dependencies: d,
		watches:      &watches{of: map[string]watch{}, progress: map[string]sight{}, missing: map[string]time.Time{}, gating: map[string]time.Time{}},
	}
}

type migrate struct {
	Dependencies
	watches *watches
}

// Step implements orchestration.Executor.
func (m *migrate) Step(ctx context.Context, task orchestration.Task) (rules.Result, error) {
	if len(task.Object.Spec.Pods) != 1 {
		return m.several(task), nil
	}
	if err := m.Store.Synced(); err != nil { // what it does not show yet is not gone
		return rules.Result{}, err
	}
	var first waiting
	var no vetoed
	switch err := m.begin(ctx, task); {
	case errors.As(err, &first):
		return rules.Result{Message: first.Error()}, nil
	case errors.As(err, &no):
		return rules.Result{Undo: true, Message: no.Error()}, nil
	case errors.Is(err, errForgotten) && task.Undoing():
		return rules.Result{Outcome: rules.RolledBack, Message: "nothing was done"}, nil
	case errors.Is(err, errForgotten):
		return rules.Result{Undo: true, Message: err.Error()}, nil
	case err != nil:
		return rules.Result{}, err
	}
	pod, err := m.source(ctx, task)
	if err != nil {
		return rules.Result{}, err
	}
	result, err := m.step(ctx, task, pod)
	result.Later = later(task.Progress)
	if result.Outcome.Over() {
		m.Store.ReleaseMigration(task.Object.Name)
		m.watches.end(task.Object.Name)
	}
	return result, err
}

// later are the progress entries that a process without them finds again: that the source is gone, that the replacement has its cores by
// its own claims, and what a watch has seen of it. With a state that comes along, each word of the progress counts.
func later(progress map[string]string) []string {
	if v1alpha1.MigrationStrategy(progress[progressStrategy]) == v1alpha1.StrategyCheckpoint {
		return nil
	}
	out := []string{progressEvicted, progressEvidence}
	if v1alpha1.MigrationStrategy(progress[progressStrategy]) == v1alpha1.StrategySurge { // the label of the copy is the record of it
		out = append(out, progressCut)
	}
	if room, err := state.ParseMigration(progress[state.ProgressReserved]); err == nil && len(room.Cores) == 0 {
		out = append(out, state.ProgressReserved)
	}
	return out
}

// source is the pod that goes; nil when it does not exist under its UID any longer, or is ending. A cache that is behind only costs a
// step, as whatever is done is done to this UID and version; what is undone says that the pod stays, and asks the API server.
func (m *migrate) source(ctx context.Context, task orchestration.Task) (*corev1.Pod, error) {
	_, evicted := task.Progress[progressEvicted]
	switch {
	case evicted:
		return nil, nil
	case task.Undoing():
		return m.read(ctx, m.API, task.Object.Spec.Pods[0])
	}
	return m.read(ctx, m.Client, task.Object.Spec.Pods[0])
}

// step goes the way of the strategy.
func (m *migrate) step(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	switch v1alpha1.MigrationStrategy(task.Progress[progressStrategy]) {
	case v1alpha1.StrategySurge:
		return m.surge(ctx, task, pod)
	case v1alpha1.StrategyCheckpoint:
		return m.checkpoint(ctx, task, pod)
	case strategyRemake:
		return m.remake(ctx, task, pod)
	}
	return m.restart(ctx, task, pod)
}

// several ends an action that is not of one pod.
func (m *migrate) several(task orchestration.Task) rules.Result {
	if task.Undoing() {
		return rules.Result{Outcome: rules.RolledBack, Message: "nothing was done"}
	}
	return rules.Result{Undo: true, Message: fmt.Sprintf("pods: %d are named, and one is moved at a time", len(task.Object.Spec.Pods))}
}

// restart evicts the pod, and follows what its owner makes in its place.
func (m *migrate) restart(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	_, evicting := task.Progress[progressBefore]
	if _, done := task.Progress[progressEvicted]; done {
		pod = nil
	}
	switch {
	case pod == nil && evicting:
		return m.follow(ctx, task)
	case task.Undoing():
		return m.restay(ctx, task, pod, evicting)
	case pod == nil:
		return rules.Result{Undo: true, Message: "the pod is gone, and nobody here has evicted it"}, nil
	}
	if result, ok, err := m.fit(ctx, task, pod); !ok {
		return result, err
	}
	switch _, reserved := task.Progress[state.ProgressReserved]; {
	case !reserved:
		if result, err := m.reserve(ctx, task, pod); err != nil || task.Progress[state.ProgressReserved] == "" {
			return result, err
		}
		return m.about(ctx, task, pod)
	case !evicting:
		return m.about(ctx, task, pod)
	}
	return m.evictBound(ctx, task, pod)
}

// evictBound evicts the pod once what its owner makes in its place would be bound to the target.
func (m *migrate) evictBound(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	if more, err := m.prepare(ctx, task, pod); more || err != nil {
		return rules.Result{Message: "about to evict the pod; its owner has made others"}, err
	}
	if why, err := m.ungated(ctx, task, pod); why != "" || err != nil {
		return rules.Result{Undo: why != "" && m.since(task, progressUngated) > undecided, Message: why}, err
	}
	delete(task.Progress, progressUngated)
	return m.evict(ctx, task, pod)
}

// about records all that the eviction needs. No step of the eviction is done by then. If a reservation is not on record yet, the next
// process reserves again.
func (m *migrate) about(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	if err := m.enter(ctx, task, v1alpha1.MigrationCuttingOver, describe(task, pod)); err != nil { // from here on the webhook gates what may be in its place
		return rules.Result{}, err
	}
	_, err := m.prepare(ctx, task, pod)
	return rules.Result{Message: "about to evict the pod"}, err
}

// restay ends what was to be undone before the eviction.
func (m *migrate) restay(ctx context.Context, task orchestration.Task, pod *corev1.Pod, evicting bool) (rules.Result, error) {
	if _, reserved := task.Progress[state.ProgressReserved]; reserved {
		if err := m.enter(ctx, task, v1alpha1.MigrationRollingBack, from(task, pod)); err != nil {
			return rules.Result{}, err
		}
	}
	if !evicting || pod == nil {
		return rules.Result{Outcome: rules.RolledBack, Message: "it was not evicted"}, nil
	}
	return rules.Result{Outcome: rules.RolledBack, Message: "the pod stays on node " + pod.Spec.NodeName}, nil
}

// reserve reserves cores of the target for the pod. A repeated call reserves the same cores. Phase Reserving is written where it lasts
// (wait): mostly the next phase follows at once.
func (m *migrate) reserve(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	target := task.Object.Spec.TargetNode
	m.Store.ReleaseMigration(task.Object.Name)
	if of, ok := strings.CutPrefix(task.Object.Spec.Cause, causePrefix); ok { // what was kept since it was decided is kept by the action from now on
		m.Store.ReleaseMigration(decided(types.UID(of)))
	}
	room, veto, err := reserveRoom(m.Store, task.Object.Name, func() (state.Migration, string) { return m.room(target, pod) })
	switch {
	case err != nil:
		return rules.Result{}, err
	case veto != "":
		return m.awaitRoom(ctx, task, veto)
	}
	text, err := room.Encode()
	if err != nil {
		return rules.Result{}, err
	}
	task.Progress[state.ProgressReserved] = text
	if target == "" {
		return rules.Result{Message: "the scheduler is to choose the node"}, nil
	}
	return rules.Result{Message: fmt.Sprintf("reserved cores of node %s", target)}, nil
}

// awaitRoom waits while another action places its pod on the target, for settling at most, and then sends the pod elsewhere. The scheduler
// may give the other pod another core than its action has reserved. Both count then until that action gives its reservation back, a step
// later. This action has nothing reserved meanwhile, on record either.
func (m *migrate) awaitRoom(ctx context.Context, task orchestration.Task, veto string) (rules.Result, error) {
	other, err := m.placing(ctx, task)
	if err != nil {
		return rules.Result{}, err
	}
	if other == "" || m.since(task, progressRoom) > settling {
		return elsewhere(task, veto), nil
	}
	delete(task.Progress, state.ProgressReserved)
	return rules.Result{Message: fmt.Sprintf("waits until action %s has placed its pod: %s", other, veto)}, nil
}

// placing is another action that has cores of the target reserved, and whose pod is there already or about to be; empty: there is none.
func (m *migrate) placing(ctx context.Context, task orchestration.Task) (string, error) {
	target := task.Object.Spec.TargetNode
	n, known := m.Store.Snapshot().NodeView(target)
	if !known {
		return "", nil
	}
	for _, other := range m.Running() {
		if other.Name == task.Object.Name || len(other.Spec.Pods) != 1 || !n.ReservedFor(other.Name) {
			continue
		}
		moved, pods := other.Spec.Pods[0], &corev1.PodList{}
		if err := m.Client.List(ctx, pods, client.InNamespace(moved.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("listing pods of namespace %s: %w", moved.Namespace, err)
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			there := p.Spec.NodeName == target || p.Spec.NodeName == "" && !gated(p)
			if p.Annotations[annotationReplaces] == string(moved.UID) && p.UID != moved.UID && p.DeletionTimestamp == nil && !finished(p) && there {
				return other.Name, nil
			}
		}
	}
	return "", nil
}

// reserveAttempts bounds how often another action may take the cores between the look and the reservation.
const reserveAttempts = 5

// reserveRoom reserves the room that choose finds for the action. An action that runs at the same time may be given a core after choose
// has looked; choose then looks again, and may find another core. veto says why there is none.
func reserveRoom(store *state.Store, action string, choose func() (state.Migration, string)) (room state.Migration, veto string, err error) {
	for range reserveAttempts {
		if room, veto = choose(); veto != "" {
			return room, veto, nil
		}
		refused := &state.RefusedError{}
		switch err := store.ReserveAll(room.Reservations(action)); {
		case err == nil:
			return room, "", nil
		case !errors.As(err, &refused):
			return room, "", err
		}
		veto = refused.Error()
	}
	return room, veto, nil
}

// room is what the pod's containers need on the target, or why it is not there. A pod that no McKube governs needs no cores.
func (d Dependencies) room(target string, pod *corev1.Pod) (room state.Migration, veto string) {
	snapshot := d.Store.Snapshot()
	view, _ := snapshot.Pod(pod.UID)
	room.Node = target
	if target == "" || len(view.Governed) == 0 {
		return room, ""
	}
	to, ok := snapshot.Destination(pod.UID, func(n *state.NodeView) bool { return n.Name == target })
	if !ok {
		return room, noCores(snapshot, pod.UID, target)
	}
	for _, g := range view.Governed {
		if core, ok := to.Cores[g.Server.ID]; ok {
			room.Cores = append(room.Cores, state.MigrationShare{Core: core, Server: g.Server})
		}
	}
	return room, ""
}

func noCores(snapshot *state.Snapshot, pod types.UID, node string) string {
	return fmt.Sprintf("no cores of node %s take all containers of the pod: %s", node, snapshot.NoDestination(pod, node))
}

// keepRoom makes sure that the target has the reserved room. Where another pod was given one of the cores, it reserves others there, which
// are stored before anything is done, or sends the pod elsewhere: kept is false then, and the step ends with the result.
func (m *migrate) keepRoom(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (result rules.Result, kept bool, err error) {
	room, err := state.ParseMigration(task.Progress[state.ProgressReserved])
	if err != nil {
		return rules.Result{}, false, err
	}
	refused := &state.RefusedError{}
	if err := m.Store.ReserveAll(room.Reservations(task.Object.Name)); !errors.As(err, &refused) {
		return rules.Result{}, true, nil
	}
	if result, err = m.reserve(ctx, task, pod); err == nil && result.Undo {
		result = elsewhere(task, "the room is gone: "+refused.Error())
	}
	return result, false, err
}

// evict asks the API server to evict this very pod, if the target still has the room for it. A budget that forbids it, or
// several between which the API server does not choose, are waited for.
func (m *migrate) evict(ctx context.Context, task orchestration.Task, pod *corev1.Pod) (rules.Result, error) {
	if result, kept, err := m.keepRoom(ctx, task, pod); !kept {
		return result, err
	}
	if err := m.enter(ctx, task, v1alpha1.MigrationCuttingOver); err != nil {
		return rules.Result{}, err
	}
	answer, err := m.ask(ctx, task, pod)
	if err != nil {
		return rules.Result{}, err
	}
	return m.evictedBy(task, pod, answer), nil
}

// markEvicted remembers when the pod was evicted.
func (m *migrate) markEvicted(task orchestration.Task) { m.markEvictedAt(task, m.Clock.Now()) }

func (m *migrate) markEvictedAt(task orchestration.Task, at time.Time) {
	if _, ok := task.Progress[progressEvicted]; !ok {
		task.Progress[progressEvicted] = at.UTC().Format(time.RFC3339Nano)
	}
}

// findEvicted does so for a process that does not know of the eviction, as another process died over it. A pod that still terminates
// says since when. If nothing is left of the pod, the time for which it has not served is unknown, and is not reported.
func (m *migrate) findEvicted(ctx context.Context, task orchestration.Task) error {
	if _, known := task.Progress[progressEvicted]; known {
		return nil
	}
	named := task.Object.Spec.Pods[0]
	for _, from := range []client.Reader{m.Client, m.API} {
		pod := &corev1.Pod{}
		err := from.Get(ctx, types.NamespacedName{Namespace: named.Namespace, Name: named.Name}, pod)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading pod %s/%s: %w", named.Namespace, named.Name, err)
		}
		if end := pod.DeletionTimestamp; err == nil && pod.UID == named.UID && end != nil {
			grace := ptr.Deref(pod.DeletionGracePeriodSeconds, 0)
			m.markEvictedAt(task, end.Add(-time.Duration(grace)*time.Second))
			return nil
		}
	}
	m.markEvicted(task)
	task.Progress[progressUntimed] = "true"
	return nil
}
