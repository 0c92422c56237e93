package migration_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// A pod on its way to a node takes room there that no other pod gets; a refusal says so. A pod that has given that node up, and waits
// for another, takes none.
func TestWhatIsOnItsWayTakesRoom(t *testing.T) {
	t.Parallel()
	for adrift, want := range map[bool]v1alpha1.MigrationPhase{false: v1alpha1.MigrationRefused, true: v1alpha1.MigrationDryRun} {
		w := newTown(t, 0)
		w.ungoverned()
		w.change = func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = amounts("5") } // of 8 that node b has left
		w.scale(2)
		for i := range 2 {
			w.bind(w.make(), "a", i)
		}
		p := w.start()
		other := w.asks("rt-1", by("Restart"))
		other.Status.Phase, other.Status.Strategy = v1alpha1.MigrationPending, v1alpha1.StrategyRestart
		other.Status.Source, other.Status.Target = &v1alpha1.MigrationEnd{PodName: "rt-1", Node: w.name("a")}, &v1alpha1.MigrationEnd{Node: w.name("b")}
		if adrift {
			other.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionMigrationAdmitted, Status: metav1.ConditionFalse, Reason: "WaitsForLimit", Message: "limit", LastTransitionTime: metav1.NewTime(w.clock.Now()),
			}}
		}
		w.must(w.api.Status().Update(t.Context(), other))
		p.look()
		w.asks("rt-2", by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.DryRun = true })
		p.one("move-rt-2")
		o := p.one("move-rt-2")
		if o.Status.Phase != want || !adrift && !strings.Contains(o.Status.Message, "node "+w.name("b")+" has not the room that the pod requests") {
			t.Errorf("another has given the node up: %t: it is %s: %s", adrift, o.Status.Phase, o.Status.Message)
		}
	}
}

// A pod that is there takes its room there itself, also before it is known that it goes on with its state: no second one is kept for it.
func TestAPodThatIsThereTakesItsRoomOnce(t *testing.T) {
	t.Parallel()
	w := newTown(t, 0)
	w.ungoverned()
	w.change = func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = amounts("5") } // of 8 that node b has left
	w.scale(1)
	w.bind(w.make(), "a", 0)
	w.house("StatefulSet")
	w.agents.cold = true // the agent does not say yet that it was restored
	w.asks("rt-1", by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.TargetNode = w.name("b") })
	p := w.further(w.start(), func() bool {
		c := w.copied()
		return c != nil && c.Spec.NodeName != "" && c.Status.Phase == corev1.PodRunning
	})
	w.must(p.turn())
	other := w.make()
	w.bind(other, "a", 1)
	other.OwnerReferences = nil
	w.must(w.api.Update(t.Context(), other))
	p.look()
	w.asks(other.Name, by("Restart"), func(o *v1alpha1.PodMigration) { o.Spec.DryRun = true })
	p.one("move-" + other.Name)
	o, first := p.one("move-"+other.Name), p.one("move-rt-1")
	if first.Status.Phase != v1alpha1.MigrationRestoring || o.Status.Phase != v1alpha1.MigrationDryRun {
		t.Errorf("the first is %s, with target %+v; the other is %s: %s", first.Status.Phase, first.Status.Target, o.Status.Phase, o.Status.Message)
	}
}
