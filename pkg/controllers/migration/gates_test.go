package migration_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// go on for some turns.
func (p *process) turns(n int, until func() bool) {
	p.Helper()
	for range n {
		p.must(p.turn())
		p.must(p.loop())
		if until != nil && until() {
			return
		}
	}
}

// copied is the pod in another's place; nil for none.
func (w *town) copied() *corev1.Pod {
	w.Helper()
	for _, p := range w.pods() {
		if p.Annotations[mcv1.AnnotationReplaces] != "" {
			return &p
		}
	}
	return nil
}

// A pod that nobody makes again may take longer to end than its migration has time: what is in its place waits for its end, however long that takes.
func TestABarePodThatIsSlowToEnd(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	bare(w)
	source := w.pods()[0]
	source.Finalizers = []string{"example.test/slow"}
	w.must(w.api.Update(t.Context(), &source))
	w.asks(source.Name, by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 12 * time.Second })
	p := w.start()
	p.turns(100, func() bool { return w.move().Status.Phase.Over() })
	p.turns(30, nil)
	if o := w.move(); o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "runs once nothing is left of it") {
		t.Fatalf("it is %s: %s", o.Status.Phase, o.Status.Message)
	}
	if c := w.copied(); c == nil || len(c.Spec.SchedulingGates) != 1 || c.Spec.NodeName != "" {
		t.Fatalf("what is in its place does not wait: %+v", c)
	}
	w.must(w.api.Get(t.Context(), client.ObjectKeyFromObject(&source), &source))
	source.Finalizers = nil
	w.must(w.api.Update(t.Context(), &source))
	p.turns(5, nil)
	if c := w.copied(); len(w.pods()) != 1 || c == nil || c.Status.Phase != corev1.PodRunning {
		t.Errorf("it ended, and what is in its place does not run: %s", w.everyone())
	}
}

// A stored copy that nobody waits for any longer, as its source stays, goes.
func TestACopyOfAPodThatStays(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	bare(w)
	source := w.pods()[0]
	w.must(w.api.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "stored", Annotations: map[string]string{mcv1.AnnotationReplaces: string(source.UID)}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "app", Image: "none"}}, SchedulingGates: []corev1.PodSchedulingGate{{Name: v1alpha1.GateMigration}},
		},
	}))
	p := w.start()
	p.turns(3, nil)
	if w.everyone() != "rt-1@a" {
		t.Error(w.everyone())
	}
}
