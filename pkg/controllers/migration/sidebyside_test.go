package migration_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// held is a client whose writes of the status of PodMigrations wait.
type held struct {
	// arrived are the names of those that wait; answers is what becomes of them: nil, they are written.
	arrived chan string
	answers map[string]chan error
}

func (w *town) hear(names ...string) *held {
	h := &held{arrived: make(chan string, len(names)), answers: map[string]chan error{}}
	for _, name := range names {
		h.answers[name] = make(chan error, 1)
	}
	w.client = interceptor.NewClient(w.api, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, api client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if answer := h.answers[o.GetName()]; answer != nil && sub == "status" {
				h.arrived <- o.GetName()
				if err := <-answer; err != nil {
					return err
				}
			}
			return api.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
	return h
}

// decides has a decision made on a PodMigration, beside others.
func (p *process) decides(name string) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := p.migrations.Reconcile(p.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: p.namespace, Name: name}})
		done <- err
	}()
	return done
}

// While one decision is being written another is made, which counts on it; what cannot be written gives its room back.
func TestDecisionsAreWrittenSideBySide(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2)
	w.node("c", 1)
	w.strangerOn("b", 0, 800_000)
	w.strangerOn("b", 1, 300_000)
	w.strangerOn("c", 0, 300_000)
	w.asks("rt-1", by("Restart"))
	w.asks("rt-2", by("Restart"))
	h := w.hear("move-rt-1", "move-rt-2")
	p := w.start()
	w.must(p.turn())
	first, second := p.decides("move-rt-1"), p.decides("move-rt-2")
	var written []string
	for range 2 {
		select {
		case name := <-h.arrived:
			written = append(written, name)
		case <-time.After(30 * time.Second):
			t.Fatalf("only %v is being written", written)
		}
	}
	h.answers["move-rt-1"] <- errors.New("the API server is away")
	if err := <-first; err == nil {
		t.Error("nothing is said of a decision that is not written")
	}
	h.answers["move-rt-2"] <- nil
	w.must(<-second)
	h.answers["move-rt-1"] <- nil
	w.must(<-p.decides("move-rt-1"))
	var targets []string
	for _, o := range w.moves() {
		if o.Status.Target == nil {
			t.Fatalf("nothing is decided on %s: %s", o.Name, o.Status.Message)
		}
		targets = append(targets, o.Status.Target.Node)
	}
	slices.Sort(targets)
	if !slices.Equal(targets, []string{w.name("b"), w.name("c")}) {
		t.Errorf("decided on %v, of which each has room for one", targets)
	}
}

// A stored decision is not made again where the cache does not show it yet, and nothing is submitted to the queue before other decisions
// are made.
func TestADecisionIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	before := w.asks("rt-1", by("Restart"))
	behind, statuses := true, 0
	w.client = interceptor.NewClient(w.api, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if m, ok := o.(*v1alpha1.PodMigration); ok && behind {
				before.DeepCopyInto(m)
				return nil
			}
			return api.Get(ctx, key, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, api client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			statuses++
			return api.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
	p := w.start()
	w.must(p.turn())
	for range 3 {
		w.must(<-p.decides("move-rt-1"))
	}
	n, ok := p.store.Snapshot().NodeView(w.name("b"))
	if !ok || len(n.Reservations) != 1 || statuses != 1 || len(w.actions(t.Context())) != 0 {
		t.Errorf("written %d times, %d actions, and on node b is kept %+v; want one decision, and its room kept", statuses, len(w.actions(t.Context())), n.Reservations)
	}
	behind = false
	w.must(<-p.decides("move-rt-1"))
	if list := w.actions(t.Context()); len(list) != 1 || list[0].Spec.TargetNode != w.name("b") {
		t.Errorf("what was decided is asked of the queue as %+v", list)
	}
}
