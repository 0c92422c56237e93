package migration_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// progressOf tells whether the last action has come as far as an entry of its progress.
func (w *town) progressOf(key string) bool {
	w.Helper()
	list := w.actions(w.Context())
	return len(list) > 0 && list[0].Status.Progress[key] != ""
}

// once does something before the first turn at which an action has come as far as an entry of its progress.
func once(key string, do func(w *town)) func(w *town) func(int, *process) {
	return func(w *town) func(int, *process) {
		done := false
		return func(_ int, p *process) {
			if !done && w.progressOf(key) {
				done = true
				do(w)
				p.look()
			}
		}
	}
}

// story is a day on which something goes wrong, or not.
type story struct {
	name      string
	before    func(w *town)
	meanwhile func(w *town) func(int, *process)
	// deaths: it is told again with the controller dying before each write from one on.
	deaths bool
	since  int
	// phases that it may end in, what its message then says, and who runs where.
	phases, says, running string
}

func stories() []story {
	out := []story{
		{name: "undisturbed", deaths: true, phases: "Succeeded", says: "with its cores in place of", running: "rt-2@b"},
		{name: "node-full", phases: "RolledBack", says: "no cores of node", running: "rt-1@a", before: func(w *town) { w.fill() }},
		{name: "node-cordoned", phases: "RolledBack", says: "does not accept the pod: the node is cordoned", running: "rt-1@a", meanwhile: once("reserved", func(w *town) { w.cordon("b") })},
		{name: "room-gone", phases: "RolledBack", says: "the room is gone: reserving core", running: "rt-1@a", meanwhile: once("before", func(w *town) { w.fill() })},
		{name: "budget", phases: "RolledBack", says: "It took longer than 20s: the pod may not be evicted yet: Cannot evict pod", running: "rt-1@a", meanwhile: once("reserved", (*town).budget)},
		{name: "pod-deleted", phases: "Refused", says: "Its pods are gone", running: "rt-2@b", meanwhile: first((*town).deletePod)},
		{name: "pod-deleted-late", phases: "Succeeded", says: "with its cores in place of", running: "rt-2@b", meanwhile: once("before", (*town).deletePod)},
		{name: "scaled-to-zero", phases: "RolledBack", says: "ReplicaSet rt, which made it, wants no pods any longer", running: "rt-1@a", meanwhile: once("reserved", func(w *town) { w.scale(0) })},
		{name: "scaled-to-zero-late", deaths: true, phases: "Failed", says: "nothing takes its place: ReplicaSet rt, which made it, wants no pods any longer", meanwhile: once("before", func(w *town) { w.lazy = true; w.scaleOnceEvicted() })},
		{name: "owner-gone", phases: "RolledBack", says: "ReplicaSet rt, which made it, is gone", running: "rt-1@a", before: func(w *town) { w.must(w.api.Delete(w.Context(), w.owner)) }},
		{name: "never", phases: "RolledBack", says: "McKube rt says migration.policy Never", running: "rt-1@a", before: (*town).forbid},
		{name: "no-replacement", phases: "Failed", says: "the time is over: the pod was evicted; waits for ReplicaSet rt to make it again", meanwhile: once("before", func(w *town) { w.lazy = true })},
		{name: "never-ready", phases: "Failed", says: "does not run yet", running: "rt-2@b", meanwhile: once("before", func(w *town) { w.unready = true })},
		{name: "comes-back-unnamed", phases: "Failed", says: "in place of the evicted one, came back to node", running: "rt-2@a", before: func(w *town) { w.unnamed = true }, meanwhile: once("before", func(w *town) { w.home = true })},
		{name: "comes-back", phases: "Failed", says: "in place of the evicted one, came back to node", running: "rt-2@a", meanwhile: once("before", func(w *town) { w.home = true })},
	}
	for at := range 6 {
		out = append(out, story{name: fmt.Sprintf("withdrawn-%d", at), deaths: at == 2 || at == 4, since: 2 * at, phases: "Withdrawn RolledBack Succeeded", meanwhile: func(w *town) func(int, *process) {
			return withdrawnAt(w, at)
		}})
	}
	return out
}

// withdrawnAt withdraws the action from a turn on, as the controller that requested it does.
func withdrawnAt(w *town, at int) func(int, *process) {
	done := false
	return func(turn int, p *process) {
		if turn < at || done {
			return
		}
		err := p.queue.Withdraw(w.Context(), w.actions(w.Context())[0].Name, "the pressure is gone")
		done = err == nil
		if err != nil && !errors.Is(err, errDied) && !errors.Is(err, orchestration.ErrNotReady) {
			w.must(err)
		}
	}
}

// fill takes all cores of node b.
func (w *town) fill() {
	w.Helper()
	w.stranger(0, 800_000)
	w.stranger(1, 800_000)
}

func (w *town) cordon(node string) {
	w.Helper()
	n := &corev1.Node{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Name: w.name(node)}, n))
	n.Spec.Unschedulable = true
	w.must(w.api.Update(w.Context(), n))
}

// lets tells whether a node of the town takes a pod, as the scheduler sees it: a cordoned one takes those that tolerate that.
func (w *town) lets(node string, p *corev1.Pod) bool {
	w.Helper()
	n := &corev1.Node{}
	if err := w.api.Get(w.Context(), client.ObjectKey{Name: w.name(node)}, n); err != nil {
		w.must(client.IgnoreNotFound(err))
		return false
	}
	return !n.Spec.Unschedulable || slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == corev1.TaintNodeUnschedulable })
}

// dies has the kubelet of a node not be heard from any longer.
func (w *town) dies(node string) {
	w.Helper()
	n := &corev1.Node{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Name: w.name(node)}, n))
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			n.Status.Conditions[i].Status = corev1.ConditionUnknown
		}
	}
	w.must(w.api.Status().Update(w.Context(), n))
}

// deletePod deletes the pod, as another controller does.
func (w *town) deletePod() {
	w.Helper()
	w.finishDeletion(&w.pods()[slices.IndexFunc(w.pods(), func(p corev1.Pod) bool { return p.Name == "rt-1" })])
}

// scaleOnceEvicted scales the owner to zero after the eviction; the owner creates no pods until then.
func (w *town) scaleOnceEvicted() {
	w.late = func() {
		if len(w.evicted) > 0 {
			w.scale(0)
			w.late = nil
		}
	}
}

func (w *town) forbid() {
	w.Helper()
	m := w.mckube()
	m.Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
	w.must(w.api.Update(w.Context(), m))
}

// tell plays a story, in which the controller may die, and looks at what is left.
func (s story) tell(t *testing.T, dieAt int, dieBefore bool) *town {
	w := newTown(t, 1)
	r := w.request("rt-1")
	if s.before != nil {
		s.before(w)
	}
	if w.unnamed {
		r.Node = ""
	}
	w.writes, w.dieAt, w.dieBefore = 0, dieAt, dieBefore
	var meanwhile func(int, *process)
	if s.meanwhile != nil {
		meanwhile = s.meanwhile(w)
	}
	list := w.play(meanwhile, r)
	phase, message := string(list[0].Status.Phase), list[0].Status.Message
	if len(list) != 1 || !strings.Contains(s.phases, phase) || !strings.Contains(message, s.says) {
		t.Errorf("%d actions; it is %s: %s", len(list), phase, message)
	}
	if s.phases == "Withdrawn RolledBack Succeeded" {
		s.running = map[bool]string{true: "rt-2@b", false: "rt-1@a"}[phase == "Succeeded"]
	}
	if got := w.running(); got != s.running {
		t.Errorf("an action that is %s (%s) leaves %q", phase, message, got)
	}
	if len(w.evicted) > 1 {
		t.Errorf("evicted: %v", w.evicted)
	}
	return w
}

// However a migration ends, and whatever write the controller dies before or after: the pod is where it was, or one in its
// place runs elsewhere, or the action says where it hangs; and nothing is reserved.
func TestAMigrationIsDoneOrUndoneOrSaysWhere(t *testing.T) {
	t.Parallel()
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := s.tell(t, 0, false)
			if w.writes == 0 || w.writes > 60 {
				t.Fatalf("%d writes", w.writes)
			}
			if !s.deaths {
				return
			}
			for _, at := range sampling.Points(t, max(1, s.since), min(w.writes, 24), deathsPerStory) { // to die after a write is to die before the next
				t.Run(fmt.Sprintf("dies-%d", at), func(t *testing.T) {
					t.Parallel()
					s.tell(t, at, true)
				})
			}
		})
	}
}

func TestWhoIsToldOfAMigration(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.play(nil, w.request("rt-1"))
	if want := []string{"Migrating rt-1", "Migrated rt-2"}; !slices.Equal(w.heard(), want) {
		t.Errorf("told %v, want %v", w.heard(), want)
	}
	p := &corev1.Pod{}
	w.must(w.api.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "rt-2"}, p))
	if of := p.Annotations[mcv1.AnnotationReplaces]; of != string(w.actions(t.Context())[0].Spec.Pods[0].UID) {
		t.Errorf("it replaces %q", of)
	}
}

// Two pods of one owner that migrate at once have a pod in their place each.
func TestTwoMigrationsOfOneOwner(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2)
	list := w.play(nil, w.request("rt-1"), w.request("rt-2"))
	if got := w.running(); got != "rt-3@b rt-4@b" {
		t.Errorf("left: %s", got)
	}
	var places []string
	for _, o := range list {
		if o.Status.Phase != "Succeeded" {
			t.Errorf("%s: %s", o.Status.Phase, o.Status.Message)
		}
		places = append(places, o.Status.Progress["replacement"])
	}
	if len(places) != 2 || places[0] == places[1] {
		t.Errorf("in their places: %v", places)
	}
}

// Two that want the last room of a node: one has it, and the other stays where it is.
func TestTwoMigrationsForTheRoomOfOne(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2)
	w.stranger(0, 800_000)
	w.stranger(1, 300_000)
	var ends []string
	for _, o := range w.play(nil, w.request("rt-1"), w.request("rt-2")) {
		ends = append(ends, string(o.Status.Phase))
	}
	slices.Sort(ends)
	if got := w.running(); !slices.Equal(ends, []string{"RolledBack", "Succeeded"}) || strings.Count(got, "@a") != 1 || strings.Count(got, "@b") != 1 || len(w.evicted) != 1 {
		t.Errorf("they end %v, evicted %v, left %s", ends, w.evicted, got)
	}
}

// All governed containers of a pod have their cores reserved, or it stays.
func TestAPodOfSeveralContainers(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		w := newTown(t, 1, "second", "third")
		r := w.request("rt-1")
		if taken {
			w.stranger(0, 800_000)
		}
		reserved := 0
		o := w.play(func(_ int, p *process) {
			if n, ok := p.store.Snapshot().NodeView(w.name("b")); ok {
				reserved = max(reserved, len(n.Reservations))
			}
		}, r)[0]
		want := map[bool]string{false: "Succeeded rt-2@b 3", true: "RolledBack rt-1@a 0"}[taken]
		if got := fmt.Sprintf("%s %s %d", o.Status.Phase, w.running(), reserved); got != want {
			t.Errorf("%s: %s; want %s", got, o.Status.Message, want)
		}
	}
}

// What the owner makes while the eviction is forbidden is not in the evicted pod's place.
func TestPodsMadeBeforeTheEvictionReplaceNobody(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	stage := 0
	list := w.play(func(turn int, _ *process) {
		switch {
		case stage == 0 && w.progressOf("before"):
			w.budget()
			stage = 1
		case stage == 1 && turn == 8:
			w.scale(2)
			stage = 2
		case stage == 2 && turn == 12:
			w.must(w.api.DeleteAllOf(t.Context(), &policyv1.PodDisruptionBudget{}, client.InNamespace(w.namespace)))
			stage = 3
		}
	}, w.request("rt-1"))
	third := &corev1.Pod{}
	w.must(w.api.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "rt-3"}, third))
	if o := list[0]; o.Status.Phase != "Succeeded" || o.Status.Progress["replacement"] != string(third.UID) || w.running() != "rt-2@b rt-3@b" {
		t.Errorf("%s: %s; %s", o.Status.Phase, o.Status.Message, w.running())
	}
}

// Pods without an owner, and pods that are not real-time ones, stay.
func TestWhoIsNotMigrated(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	p := &corev1.Pod{}
	w.must(w.api.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "rt-1"}, p))
	p.OwnerReferences = nil
	w.must(w.api.Update(t.Context(), p))
	list := w.play(nil, w.request("rt-1"))
	if o := list[0]; o.Status.Phase != "RolledBack" || !strings.Contains(o.Status.Message, "no controller owns the pod, so nothing would make it again") || len(w.evicted) > 0 {
		t.Errorf("%s: %s, evicted %v", o.Status.Phase, o.Status.Message, w.evicted)
	}
}

// A cache that is not complete yet knows of no pods: that is no reason to give an action up.
func TestAnIncompleteCacheIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	p := w.start()
	p, name := w.submit(p, w.request("rt-1"))
	w.must(p.turn())
	p = w.start()
	incomplete := migration.New(migration.Dependencies{Clock: w.clock, Client: w.client, API: w.api, Store: state.New(state.Options{}), Recorder: w})
	p.queue.Handle(rules.Migrate, incomplete)
	_, err := p.queue.Loops()[0].Reconcile(t.Context(), reconcile.Request{})
	w.must(err)
	if _, err := p.queue.Loops()[1].Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err == nil {
		t.Error("it is not told")
	}
	if o := w.actions(t.Context())[0]; o.Status.Phase != "Running" || !strings.Contains(o.Status.LastError, "waiting for the first lists") {
		t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, o.Status.LastError)
	}
}
