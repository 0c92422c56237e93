package migration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// named has the first pod governed by its name.
func (w *town) named() {
	w.Helper()
	m := w.mckube()
	m.Finalizers = nil
	w.must(w.api.Update(w.Context(), m))
	w.must(w.api.Delete(w.Context(), m))
	by := statetest.McKube(w.namespace, "rt", w.first(), "High", 40, 40)
	by.UID, by.Spec.Container = "", "app"
	w.must(w.api.Create(w.Context(), by))
}

func briefly(o *v1alpha1.PodMigration) {
	o.Spec.WaitTimeout = &metav1.Duration{Duration: 20 * time.Second}
}

// No migration waits for ever, and one that has waited too long says for what.
func TestAMigrationDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	for _, j := range []journey{
		{name: "for-a-budget", town: (*town).budget, ask: func(w *town) { w.asks("rt-1", by("Restart"), briefly) }, phase: "Aborted",
			says: "it has waited for its turn for 20s: waits for its turn: PodDisruptionBudget", places: "a"},
		{name: "for-a-while", town: (*town).budget, ask: func(w *town) { w.asks("rt-1", by("Restart"), briefly) }, during: func(w *town) func(int, *process) {
			return func(turn int, _ *process) {
				if turn == 10 {
					w.must(w.api.DeleteAllOf(w.Context(), &policyv1.PodDisruptionBudget{}, client.InNamespace(w.namespace)))
				}
			}
		}, phase: "Succeeded", places: "b"},
	} {
		j.test(t)
	}
	w := newTown(t, 2)
	w.budget()
	w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{Limits: &v1alpha1.MigrationLimits{PerNamespace: ptr.To[int32](1)}}}
	w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.WaitTimeout = &metav1.Duration{Duration: 40 * time.Second} })
	w.asks("rt-2", by("Restart"), briefly)
	list := w.migrate(nil)
	if second := list[1].Status; second.Phase != "Aborted" || second.Message != "it has waited for its turn for 20s: limit perNamespace is reached: 1 of 1 migrations in namespace "+w.namespace {
		t.Errorf("%s: %s", second.Phase, second.Message)
	}
}

// What policy has allowed it is asked again about when the turn comes long after.
func TestPolicyIsAskedAgainWhenTheTurnComes(t *testing.T) {
	t.Parallel()
	for _, denies := range []string{"", "no window is open"} {
		w := newTown(t, 1)
		w.gating = true
		w.budget()
		w.asks("rt-1", by("Restart"))
		list := w.migrate(func(turn int, _ *process) {
			if turn == 15 {
				w.judge.denies = denies
				w.must(w.api.DeleteAllOf(t.Context(), &policyv1.PodDisruptionBudget{}, client.InNamespace(w.namespace)))
			}
		})
		want, said := v1alpha1.MigrationSucceeded, "runs on node"
		if denies != "" {
			want, said = v1alpha1.MigrationRolledBack, "policy does not allow it any longer: "+denies
		}
		if got := list[0].Status; got.Phase != want || !strings.Contains(got.Message, said) || len(w.judge.questions()) != 2 {
			t.Errorf("%s: %s; it was asked %d times", got.Phase, got.Message, len(w.judge.questions()))
		}
	}
}

// A pod that was moved with its state is made of its own images when it is moved again without.
func TestThereWithItsStateAndBackWithout(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	bare(w)
	w.able()
	w.asks(w.first(), by("Checkpoint"))
	w.migrate(nil)
	there := w.pods()[0]
	w.asks(there.Name, by("Restart"), func(o *v1alpha1.PodMigration) { o.Name = "back" })
	w.migrate(nil)
	back := w.pods()[0]
	if a, b := there.Spec.Containers[0].Image, back.Spec.Containers[0].Image; !strings.HasPrefix(a, "mainspring.local/checkpoint/") || b != "none" || w.places() != "a" {
		t.Errorf("made of %q there and of %q back; %s", a, b, w.everyone())
	}
}

// deleteNode has the API server delete a node, as Karpenter does with one that has expired: it stays until its pods have gone.
func (w *town) deleteNode(node string) {
	w.Helper()
	n := &corev1.Node{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Name: w.name(node)}, n))
	n.Finalizers = []string{"karpenter.sh/termination"}
	w.must(w.api.Update(w.Context(), n))
	w.must(w.api.Delete(w.Context(), n))
	w.Cleanup(func() {
		bare := &corev1.Node{}
		w.must(w.api.Get(context.WithoutCancel(w.Context()), client.ObjectKey{Name: w.name(node)}, bare))
		bare.Finalizers = nil
		w.must(w.api.Update(context.WithoutCancel(w.Context()), bare))
	})
}

// A pod whose node is being deleted waits for the node that is opened for it; one whose node stays has no reason to.
func TestAPodWaitsForTheNodeThatIsOpenedForIt(t *testing.T) {
	t.Parallel()
	drained := func(o *v1alpha1.PodMigration) { o.Spec.Trigger = v1alpha1.TriggerDrain }
	for _, deleted := range []bool{true, false} {
		w := newTown(t, 1)
		w.cordon("b")
		if deleted {
			w.deleteNode("a")
		}
		w.asks("rt-1", drained)
		waited := ""
		list := w.migrate(func(turn int, _ *process) {
			if turn == 10 && deleted {
				waited = w.moves()[0].Status.Message
				w.shuts("b", false)
			}
		})
		got, want := list[0].Status, v1alpha1.MigrationRefused
		if deleted {
			want = v1alpha1.MigrationSucceeded
		}
		if got.Phase != want || deleted && (w.places() != "b" || !strings.Contains(waited, "waits for a node to be opened")) {
			t.Errorf("its node deleted: %t: %s: %s; it waited as %q; pods are on %q", deleted, got.Phase, got.Message, waited, w.places())
		}
	}
}
