package migration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
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

// A pod that no owner recreates may take longer to end than its migration has time: its replacement waits for its end, however long that
// takes.
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

// A stored copy that no migration waits for any longer, as its source stays, is deleted.
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

// gatedPods are the names of pods behind the gate.
func (w *town) gatedPods() (out []string) {
	w.Helper()
	for _, p := range w.pods() {
		if len(p.Spec.SchedulingGates) > 0 {
			out = append(out, p.Name)
		}
	}
	return out
}

// What an owner creates while a PodDisruptionBudget forbids the eviction replaces no pod. It runs, and the budget may wait for just
// that.
func TestPodsMadeWhileTheEvictionIsRefusedRun(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	w.node("c", 2)
	w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) {
		o.Spec.TargetNode, o.Spec.Timeout.Duration = w.name("c"), 60*time.Second
	})
	stage, behind := 0, 0
	o := w.migrate(func(int, *process) {
		switch {
		case stage == 0 && w.move().Status.Phase == v1alpha1.MigrationCuttingOver:
			w.budget()
			stage++
		case stage == 1:
			w.scale(2)
			stage++
		case stage == 2 && w.places() == "a b": // as many run as the budget asks for beside the one that goes
			w.must(w.api.DeleteAllOf(t.Context(), &policyv1.PodDisruptionBudget{}, client.InNamespace(w.namespace)))
			stage++
		}
		if stage < 3 {
			behind += len(w.gatedPods())
		}
	})[0]
	if o.Status.Phase != v1alpha1.MigrationSucceeded || behind > 0 || w.places() != "b c" {
		t.Errorf("%d turns behind a gate; it is %s: %s; %s", behind, o.Status.Phase, o.Status.Message, w.everyone())
	}
}

// As many wait as have really gone, though the one in the place of that finds no node.
func TestAsManyWaitAsHaveGone(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2)
	w.gating = true
	w.node("c", 2)
	w.crowded = map[string]bool{"c": true}
	w.asks("rt-1", by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.TargetNode = w.name("c") })
	stage, most := 0, 0
	w.migrate(func(_ int, p *process) {
		switch {
		case stage == 0 && w.move().Status.Phase == v1alpha1.MigrationCuttingOver:
			w.scale(4)
			w.lazy = true // until the eviction, which is in this turn
			stage++
		case stage == 1 && len(w.evicted) > 0:
			w.lazy = false
			w.live() // three are made
			w.must(p.loop())
			most = len(w.gatedPods())
			stage++
		}
	})
	if stage != 2 || most != 1 || len(w.pods()) != 4 {
		t.Errorf("stage %d: %d are behind the gate, want one; %s", stage, most, w.everyone())
	}
}

// A StatefulSet's pods have names, those of an Indexed Job indexes: a pod with another name or index does not replace the evicted one.
func TestWhoseNameIsAwaited(t *testing.T) {
	t.Parallel()
	o := &v1alpha1.PodMigration{Status: v1alpha1.PodMigrationStatus{
		Strategy: v1alpha1.StrategyRestart, Phase: v1alpha1.MigrationCuttingOver,
		Owner: &v1alpha1.MigrationOwner{Kind: "StatefulSet", UID: "1"}, Source: &v1alpha1.MigrationEnd{PodName: "db-1"},
	}}
	for _, c := range []struct {
		name, kind, index, sourceIndex string
		owner                          types.UID
		want                           bool
	}{
		{"db-1", "StatefulSet", "", "", "1", true}, {"db-2", "StatefulSet", "", "", "1", false}, {"db-1", "StatefulSet", "", "", "2", false}, {"", "ReplicaSet", "", "", "1", true},
		{"", "Job", "3", "3", "1", true}, {"", "Job", "4", "3", "1", false}, {"", "Job", "", "", "1", true},
	} {
		o.Status.Source.CompletionIndex = c.sourceIndex
		by := metav1.OwnerReference{Kind: c.kind, UID: c.owner, Controller: ptr.To(true)}
		if got := v1alpha1.AwaitsReplacement(o, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: c.name, OwnerReferences: []metav1.OwnerReference{by}, Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: c.index},
		}}); got != c.want {
			t.Errorf("%+v: awaited: %t", c, got)
		}
	}
}

// A pod of another index of the same Job that is made meanwhile is not taken for the one in the evicted pod's place.
func TestAPodOfAnotherIndex(t *testing.T) {
	t.Parallel()
	w := journey{town: func(w *town) {
		h := w.house("Indexed Job")
		w.agents.most = 2
		w.late = func() {
			if len(w.evicted) > 0 && h.made == 1 {
				p := h.pod.DeepCopy()
				p.Name, p.Annotations = "rt-0", map[string]string{batchv1.JobCompletionIndexAnnotation: "0"}
				if err := h.api.Create(h.Context(), p); err == nil {
					h.bind(p, "b", 0)
				}
			}
			h.live()
		}
	}, ask: ask("Restart"), phase: "Succeeded", says: "/rt-2 runs on node", places: "b b"}.tell(t, 0, false)
	if o := w.move(); o.Status.Source.CompletionIndex != "1" {
		t.Errorf("%+v: %s", o.Status.Source, o.Status.Message)
	}
}

// A pod is not evicted if nothing would bind the owner's next pod to the target: it would return, and would have been unavailable for
// nothing.
func TestAPodThatNothingWouldBindToItsTargetIsNotEvicted(t *testing.T) {
	t.Parallel()
	for _, cordoned := range []bool{false, true} {
		w := newTown(t, 1)
		w.unsent = true
		if cordoned { // it cannot come back
			w.cordon("a")
		}
		w.asks("rt-1", by("Restart"))
		o := w.migrate(nil)[0]
		want := map[bool]string{false: "RolledBack a 0", true: "Succeeded b 1"}[cordoned]
		if got := fmt.Sprintf("%s %s %d", o.Status.Phase, w.places(), len(w.evicted)); got != want || !cordoned && !strings.Contains(o.Status.Message, "nothing would bind the pod to node "+w.name("b")) {
			t.Errorf("cordoned %t: %s, want %s: %s", cordoned, got, want, o.Status.Message)
		}
	}
}

// Where the controller serves no webhooks that is known beforehand, and a dry run promises nothing.
func TestWithoutWebhooksAnOwnersPodIsNotRestarted(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[v1alpha1.MigrationStrategy]string{"Restart": "Refused", "Evict": "Succeeded"} {
		w := newTown(t, 1)
		w.webhookless = true
		w.asks("rt-1", by(strategy))
		o := w.migrate(nil)[0]
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationAdmitted)
		if string(o.Status.Phase) != want || (c.Reason == migration.ReasonNotBound) != (want == "Refused") {
			t.Errorf("%s: it is %s: %+v", strategy, o.Status.Phase, c)
		}
	}
}
