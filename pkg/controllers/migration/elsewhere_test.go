package migration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// crowd takes all cores of a node, once.
func (w *town) crowd(node string) {
	w.Helper()
	if !w.crowds[node] {
		w.crowds[node] = true
		w.strangerOn(node, 0, 800_000)
		w.strangerOn(node, 1, 800_000)
	}
}

// overtaken has strangers take the cores of so many targets, each after it was decided on and before the migration has its turn.
func overtaken(times int) func(w *town) func(int, *process) {
	return func(w *town) func(int, *process) {
		w.crowds = map[string]bool{}
		return func(_ int, p *process) {
			for _, o := range w.moves() {
				if o.Status.Phase == v1alpha1.MigrationPending && o.Status.Target != nil && len(w.crowds) < times {
					w.crowd(strings.TrimPrefix(o.Status.Target.Node, w.namespace+"-"))
					p.look()
				}
			}
		}
	}
}

// squeezed has a stranger take the core of the target that an action has reserved, before the pod is evicted. The other core is free.
func squeezed(w *town) func(int, *process) {
	return func(_ int, p *process) {
		for _, a := range w.actions(w.Context()) {
			room, err := state.ParseMigration(a.Status.Progress[state.ProgressReserved])
			if err != nil || len(room.Cores) == 0 || w.crowds != nil {
				continue
			}
			w.crowds = map[string]bool{"b": true}
			w.strangerOn("b", room.Cores[0].Core, 800_000)
			p.look()
		}
	}
}

func nodes(names ...string) func(w *town) {
	return func(w *town) {
		for _, name := range names {
			w.node(name, 2)
		}
	}
}

// A migration for which the room is gone when its turn comes goes elsewhere, if any node will do, three times at most.
func TestAMigrationGoesElsewhere(t *testing.T) {
	t.Parallel()
	for _, j := range []struct {
		journey
		actions int
	}{
		{journey{name: "once", town: nodes("c"), ask: ask("Restart"), during: overtaken(1), phase: "Succeeded", places: "c", deaths: true, since: 7}, 2},
		{journey{name: "other-core", ask: ask("Restart"), during: squeezed, phase: "Succeeded", places: "b", deaths: true, since: 7}, 1},
		{journey{name: "nowhere", ask: ask("Restart"), during: overtaken(1), phase: "RolledBack", says: "no cores of node", places: "a"}, 1},
		{journey{name: "thrice", town: nodes("c", "d", "e"), ask: ask("Restart"), during: overtaken(9), phase: "RolledBack", says: "3 nodes were tried", places: "a"}, 3},
		{journey{name: "named", town: nodes("c"), ask: func(w *town) {
			w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.TargetNode = w.name("b") })
		}, during: overtaken(1), phase: "RolledBack", says: "no cores of node", places: "a"}, 1},
		{journey{name: "aborted", town: nodes("c"), ask: ask("Restart"), during: func(w *town) func(int, *process) {
			overtakes := overtaken(1)(w)
			return func(turn int, p *process) {
				overtakes(turn, p)
				if o := w.move(); strings.Contains(o.Status.Message, "was tried before") && !o.Spec.Abort {
					abort(w)
				}
			}
		}, phase: "Aborted", places: "a"}, 2},
	} {
		j.test(t)
		t.Run(j.name+"-actions", func(t *testing.T) {
			t.Parallel()
			if list := j.tell(t, 0, false).actions(t.Context()); len(list) != j.actions {
				t.Errorf("%d actions, want %d", len(list), j.actions)
			}
		})
	}
}

// closing deletes the node of the pods, as Karpenter does. Its finalizer keeps it.
func closing(w *town) {
	w.Helper()
	key := client.ObjectKey{Name: w.name("a")}
	edit := func(finalizers ...string) {
		n := &corev1.Node{}
		w.must(w.api.Get(context.Background(), key, n))
		n.Finalizers = finalizers
		w.must(w.api.Update(context.Background(), n))
	}
	edit("karpenter.sh/termination")
	w.Cleanup(func() { edit() })
	w.must(w.api.Delete(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}))
}

// A pod whose node is being deleted goes to a node that had no room for it once, when that has room again: no other is opened then. If
// it never has, the migration ends when it has waited for as long as it may.
func TestAMigrationGoesToATriedNodeAgain(t *testing.T) {
	t.Parallel()
	for _, j := range []struct {
		journey
		actions int
	}{
		{journey{name: "room", phase: "Succeeded", places: "b", deaths: true, since: 7, during: func(w *town) func(int, *process) {
			crowds, gone := overtaken(1)(w), false
			return func(turn int, p *process) {
				crowds(turn, p)
				if o := w.move(); !gone && strings.HasPrefix(o.Status.Message, "waits for a node to be opened") {
					gone = true
					for core := range 2 {
						w.must(w.api.Delete(w.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("stranger-b-%d-app", core)}}))
					}
					p.look()
				}
			}
		}}, 2},
		{journey{name: "no-room", phase: "Aborted", says: "it has waited for its turn for 3m0s", places: "a", during: overtaken(1)}, 1},
	} {
		j.town = closing
		j.ask = func(w *town) {
			w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) {
				o.Spec.Trigger, o.Spec.WaitTimeout = v1alpha1.TriggerEviction, &metav1.Duration{Duration: 3 * time.Minute}
			})
		}
		j.test(t)
		t.Run(j.name+"-actions", func(t *testing.T) {
			t.Parallel()
			if list := j.tell(t, 0, false).actions(t.Context()); len(list) != j.actions {
				t.Errorf("%d actions, want %d", len(list), j.actions)
			}
		})
	}
}

// A node that was chosen for one migration is not chosen for another, although no action has reserved it yet.
func TestDecisionsCountOnOneAnother(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2)
	w.gating = true
	w.node("c", 1)
	w.strangerOn("b", 0, 800_000)
	w.strangerOn("b", 1, 300_000)
	w.strangerOn("c", 0, 300_000)
	w.asks("rt-1", by("Restart"))
	w.asks("rt-2", by("Restart"))
	var decided []string
	list := w.migrate(func(int, *process) {
		if len(decided) == 0 {
			for _, o := range w.moves() {
				if o.Status.Target != nil {
					decided = append(decided, strings.TrimPrefix(o.Status.Target.Node, w.namespace+"-"))
				}
			}
		}
	})
	slices.Sort(decided)
	if !slices.Equal(decided, []string{"b", "c"}) || len(w.actions(t.Context())) != 2 {
		t.Errorf("decided on %v: %s; %s", decided, list[0].Status.Message, list[1].Status.Message)
	}
}

// What cannot be put on record is not kept for ever.
func TestADecisionThatIsNotStoredKeepsNothing(t *testing.T) {
	t.Parallel()
	for at := 1; at <= 2; at++ {
		w := newTown(t, 1)
		w.asks("rt-1", by("Restart"))
		p := w.start()
		w.must(p.turn())
		w.writes, w.dieAt, w.dieBefore = 0, at, true
		if err := p.loop(); !errors.Is(err, errDied) {
			t.Fatal(err)
		}
		p.free()
	}
}
