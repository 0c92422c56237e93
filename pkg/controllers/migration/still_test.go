package migration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// hung has a move with state end whose rollback took longer than it had. The source stays stopped, as its copy may be at work on a node
// that does not answer.
func hung(t *testing.T) (*town, *process, corev1.Pod) {
	t.Helper()
	w := newTown(t, 1)
	w.rollout(1)
	w.able()
	w.agents.cold = true
	w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 12 * time.Second })
	source := w.pods()[0]
	p := w.start()
	hold := at(v1alpha1.MigrationVerifying, func(w *town) { w.hold(true) })(w)
	for turn := 0; turn < 100 && !w.move().Status.Phase.Over(); turn++ {
		hold(turn, p)
		w.must(p.turn())
		w.must(p.loop())
		p.leftovers()
	}
	if o := w.move(); o.Status.Phase != v1alpha1.MigrationFailed || !w.agents.stopped[source.UID] {
		t.Fatalf("it is %s: %s; stopped %v", o.Status.Phase, o.Status.Message, w.agents.stopped)
	}
	w.agents.cold = false
	return w, p, source
}

// further lets everybody go on for some turns.
func (p *process) further(turns int, each func()) {
	p.Helper()
	for range turns {
		p.must(p.turn())
		p.must(p.loop())
		p.leftovers()
		each()
	}
}

// No other migration moves a pod that stays stopped for a migration that is over: each would undo what the other does. The one that asks
// waits, is told for what, and has its turn when the pod runs on.
func TestAPodThatStandsStillIsNotMoved(t *testing.T) {
	t.Parallel()
	for _, strategy := range []v1alpha1.MigrationStrategy{"Checkpoint", "Restart", "Surge", "Evict"} {
		w, p, source := hung(t)
		held := p.leftovers()[0].Name
		o := w.asks(source.Name, by(strategy), func(o *v1alpha1.PodMigration) { o.Name = "again" })
		p.further(20, func() {
			there := &corev1.Pod{}
			if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(&source), there); err != nil || there.UID != source.UID || !w.agents.stopped[source.UID] || len(p.leftovers()) != 1 {
				t.Fatalf("%s: the pod does not stand still any longer: %v; %s", strategy, err, w.everyone())
			}
		})
		w.must(w.api.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationAdmitted)
		if o.Status.Phase != v1alpha1.MigrationPending || c == nil || c.Status != metav1.ConditionFalse || c.Reason != "StandsStill" || !strings.Contains(o.Status.Message, held) {
			t.Errorf("%s: it is %s: %s; %+v", strategy, o.Status.Phase, o.Status.Message, c)
		}
		w.hold(false)
		for turn := 0; turn < 60 && !o.Status.Phase.Over(); turn++ {
			p.further(1, func() {})
			w.must(w.api.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		}
		if o.Status.Phase != v1alpha1.MigrationSucceeded || w.places() != "b" {
			t.Errorf("%s: afterwards it is %s: %s; %s", strategy, o.Status.Phase, o.Status.Message, w.everyone())
		}
	}
}

// The same holds for an action without a PodMigration. It is rolled back, so that the controller that requested it does something else,
// and the ladder does not plan it.
func TestAPodThatStandsStillAndAnAction(t *testing.T) {
	t.Parallel()
	w, p, source := hung(t)
	held := p.leftovers()[0].Name
	view, _ := p.store.Snapshot().Pod(source.UID)
	if way, err := p.dependencies().Passage(t.Context(), view, w.name("b")); err != nil || !strings.Contains(way.Veto, held) {
		t.Errorf("it would go: %+v, %v", way, err)
	}
	p, name := w.submit(p, w.request(source.Name))
	p.further(10, func() {})
	list := w.actions(t.Context())
	i := slices.IndexFunc(list, func(o v1alpha1.RTAction) bool { return o.Name == name })
	if o := list[i].Status; rules.Phase(o.Phase) != rules.RolledBack || !strings.Contains(o.Message, held) || !w.agents.stopped[source.UID] || len(p.leftovers()) != 1 {
		t.Errorf("it is %s: %s; %s", o.Phase, o.Message, w.everyone())
	}
	w.hold(false)
}

// An action that was admitted before does nothing, either.
func TestAPodThatStandsStillMeanwhile(t *testing.T) {
	t.Parallel()
	for _, strategy := range []v1alpha1.MigrationStrategy{"Checkpoint", "Restart", "Surge"} {
		w := newTown(t, 1)
		w.rollout(1)
		w.able()
		source := w.pods()[0]
		w.asks(source.Name, by(strategy))
		p := w.start()
		p.further(1, func() {})
		if w.move().Status.Strategy != strategy {
			t.Fatalf("%s: it is not admitted", strategy)
		}
		nc := &v1alpha1.NodeCheckpoint{ObjectMeta: metav1.ObjectMeta{Name: w.name("other")}, Spec: v1alpha1.NodeCheckpointSpec{
			PodNamespace: w.namespace, PodName: source.Name, PodUID: source.UID, Containers: []v1alpha1.CheckpointedContainer{{Name: "app"}},
			SourceNode: w.name("a"), TargetNode: w.name("b"), Stage: v1alpha1.StageRestore, Expires: metav1.NewTime(w.clock.Now().Add(time.Hour)),
		}}
		w.must(w.api.Create(t.Context(), nc))
		for turn := 0; turn < 30 && !w.move().Status.Phase.Over(); turn++ {
			p.further(1, func() {})
		}
		if o := w.move(); o.Status.Phase != v1alpha1.MigrationRolledBack || !strings.Contains(o.Status.Message, nc.Name) || w.places() != "a" || len(w.evicted) > 0 {
			t.Errorf("%s: it is %s: %s; %s", strategy, o.Status.Phase, o.Status.Message, w.everyone())
		}
		w.must(w.api.Delete(t.Context(), nc))
	}
}

// The loop that ends what is left of a migration deletes the migration's own copy, and not what another has created in the source's
// place. A pod of the latter kind that has the state keeps the source stopped.
func TestWhatOthersHaveMadeInItsPlace(t *testing.T) {
	t.Parallel()
	for _, state := range []bool{false, true} {
		w, p, source := hung(t)
		other := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "stranger", Annotations: map[string]string{mcv1.AnnotationReplaces: string(source.UID)}},
			Spec:       corev1.PodSpec{NodeName: w.name("b"), Containers: []corev1.Container{{Name: "app", Image: "none"}}},
		}
		if state {
			other.Spec.Containers[0].Image = "mainspring.local/checkpoint/of-another:app"
		}
		w.must(w.api.Create(t.Context(), other))
		w.hold(false)
		p.further(5, func() {})
		is := &corev1.Pod{}
		if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(other), is); err != nil || is.DeletionTimestamp != nil {
			t.Errorf("with state %t: it was taken away: %v, %s", state, err, w.everyone())
		}
		if w.agents.stopped[source.UID] != state || len(p.leftovers()) > 0 != state {
			t.Errorf("with state %t: stopped %v, %d NodeCheckpoints", state, w.agents.stopped, len(p.leftovers()))
		}
		w.finishDeletion(other)
		if p.further(5, func() {}); w.agents.stopped[source.UID] || len(p.leftovers()) > 0 {
			t.Errorf("with state %t: the source stands still, %d NodeCheckpoints", state, len(p.leftovers()))
		}
	}
}
