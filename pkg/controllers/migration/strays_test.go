package migration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
)

// strays lets the loop look at every pod.
func (p *process) strays() {
	p.Helper()
	s := &migration.Strays{Dependencies: p.dependencies()}
	for _, pod := range p.pods() {
		if _, err := s.Reconcile(p.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pod)}); err != nil {
			p.Fatal(err)
		}
	}
}

// tear deletes the action by force, as a user may: no process takes it further from then on.
func (w *town) tear() {
	w.Helper()
	for _, o := range w.actions(w.Context()) {
		o.Finalizers = nil
		w.must(w.api.Update(w.Context(), &o))
		w.must(client.IgnoreNotFound(w.api.Delete(w.Context(), &o)))
	}
}

// until a migration has come to a phase, which it must within some turns.
func (p *process) until(phase v1alpha1.MigrationPhase) {
	p.Helper()
	p.turns(100, func() bool { return p.move().Status.Phase == phase })
	if o := p.move(); o.Status.Phase != phase {
		p.Fatalf("it is %s: %s", o.Status.Phase, o.Status.Message)
	}
}

// clear cleans up for some turns what no action is at work on any longer.
func (p *process) clear() {
	p.Helper()
	for range 12 {
		p.live()
		p.leftovers()
		p.strays()
		p.clock.Step(5 * time.Second)
	}
}

// A copy whose action a user has deleted by force goes, and its source has its former cost again. While the action is under way nothing
// is touched.
func TestACopyWhoseActionIsGone(t *testing.T) {
	t.Parallel()
	for _, cost := range []string{"", "7"} {
		w := newTown(t, 1)
		w.rollout(1)
		source := w.pods()[0]
		if cost != "" {
			metav1.SetMetaDataAnnotation(&source.ObjectMeta, corev1.PodDeletionCost, cost)
			w.must(w.api.Update(t.Context(), &source))
		}
		w.asks(source.Name, by("Surge"))
		p := w.start()
		w.deaf = true
		for range 100 {
			if w.move().Status.Phase == v1alpha1.MigrationCuttingOver {
				break
			}
			p = p.next(p.turn()) // it dies when it hands the copy over
			p = p.next(p.loop())
			p.strays()
		}
		p.next(p.turn())
		w.must(w.api.Get(t.Context(), client.ObjectKeyFromObject(&source), &source))
		if c := w.copied(); c == nil || source.Annotations[corev1.PodDeletionCost] != "-2147483648" {
			t.Fatalf("it is %s, with a copy: %t; %v", w.move().Status.Phase, c != nil, source.Annotations)
		}
		w.tear()
		p = w.start()
		p.clear()
		w.must(w.api.Get(t.Context(), client.ObjectKeyFromObject(&source), &source))
		if got, ok := source.Annotations[corev1.PodDeletionCost]; w.everyone() != source.Name+"@a" || got != cost || ok != (cost != "") || source.Annotations["mckube.io/former-deletion-cost"] != "" {
			t.Errorf("%s; %v", w.everyone(), source.Annotations)
		}
	}
}

// unasked are the collaborators of a loop that may not ask the API server itself.
func (p *process) unasked() migration.Dependencies {
	d, asked := p.dependencies(), errors.New("the API server was asked")
	d.API = interceptor.NewClient(p.api, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return asked
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return asked },
	})
	return d
}

// While a pod is on the move, the API server is not asked about it each time that it, or its copy, changes.
func TestAPodOnTheMoveCostsNoRequest(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.rollout(1)
	w.asks(w.first(), by("Surge"))
	p := w.start()
	p.until(v1alpha1.MigrationVerifying)
	s := &migration.Strays{Dependencies: p.unasked()}
	copies := 0
	for _, pod := range w.pods() {
		if pod.Annotations[v1alpha1.AnnotationAction] != "" {
			copies++
		}
		result, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pod)})
		if err != nil || pod.Annotations[v1alpha1.AnnotationAction] != "" && result.RequeueAfter <= 0 {
			t.Errorf("pod %s: looks again after %s, %v", pod.Name, result.RequeueAfter, err)
		}
	}
	if copies != 1 {
		t.Errorf("%d copies: %s", copies, w.everyone())
	}
}

// What users have made, or said, is not ours to take away.
func TestPodsThatAreNoStrays(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	source := w.pods()[0]
	metav1.SetMetaDataAnnotation(&source.ObjectMeta, corev1.PodDeletionCost, "-2147483648")
	w.must(w.api.Update(t.Context(), &source))
	w.must(w.api.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "in-place", Annotations: map[string]string{mcv1.AnnotationReplaces: "gone"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}},
	}))
	w.start().strays()
	w.must(w.api.Get(t.Context(), client.ObjectKeyFromObject(&source), &source))
	if len(w.pods()) != 2 || source.Annotations[corev1.PodDeletionCost] == "" {
		t.Errorf("%s; %v", w.everyone(), source.Annotations)
	}
}

// A copy that serves with the state stays after its action is gone: its source goes, which would stay stopped for ever.
func TestACopyThatServesAfterItsActionIsGone(t *testing.T) {
	t.Parallel()
	for _, found := range []func(*town){bare, func(w *town) { w.rollout(1) }} {
		w := newTown(t, 1)
		found(w)
		w.able()
		source := w.pods()[0]
		w.asks(source.Name, by("Checkpoint"))
		p := w.start()
		p.until(v1alpha1.MigrationVerifying)
		torn := w.actions(t.Context())[0].Name
		w.tear()
		w.clock.Step(time.Hour) // before that it may only not be seen yet, and its age is the API server's
		_, err := p.queue.Loops()[1].Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: torn}})
		w.must(err)
		p.turns(10, func() bool { return w.move().Status.Phase.Over() })
		if o := w.move(); o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "deleted by force while it was Verifying") {
			t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
		}
		w.start().clear()
		c := w.copied()
		if list := p.leftovers(); len(list) > 0 || len(w.pods()) != 1 || c == nil || w.adopts != (metav1.GetControllerOf(c) != nil) {
			t.Errorf("%d NodeCheckpoints are left; %s", len(list), w.everyone())
		}
	}
}

// A source that may not go for longer than its migration has time goes when it may: its copy has served all the while.
func TestASourceThatMayNotGo(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	bare(w)
	w.able()
	w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 20 * time.Second })
	p := w.start()
	p.until(v1alpha1.MigrationVerifying)
	w.budget()
	p.until(v1alpha1.MigrationFailed)
	if o := w.move(); !strings.Contains(o.Status.Message, "the source is still there") {
		t.Errorf("it says %q", o.Status.Message)
	}
	p.clear()
	if len(w.pods()) != 2 {
		t.Errorf("though it may not: %s", w.everyone())
	}
	w.must(w.api.DeleteAllOf(t.Context(), &policyv1.PodDisruptionBudget{}, client.InNamespace(w.namespace)))
	p.clear()
	if list := p.leftovers(); len(list) > 0 || len(w.pods()) != 1 || w.copied() == nil {
		t.Errorf("%d NodeCheckpoints are left; %s", len(list), w.everyone())
	}
}
