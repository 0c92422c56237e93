package migration_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// late has a source end beside a copy that is not ready yet, and a user abort that. No controller runs until the time for the rollback
// is over, too.
func late(t *testing.T, meanwhile func(*town)) (*town, *process) {
	t.Helper()
	w := newTown(t, 1)
	bare(w)
	w.able()
	w.unready = true
	w.asks(w.first(), by("Checkpoint"))
	p := w.start()
	p.until(v1alpha1.MigrationVerifying)
	w.end()
	abort(w)
	for range 2 {
		p.look()
		w.must(p.turn())
		w.must(p.loop())
	}
	meanwhile(w)
	w.clock.Step(10 * time.Minute)
	p = w.start()
	p.further(5, w.lonely)
	return w, p
}

// The state of a source that has ended is kept for an hour then, for the copy that has still to be restored. The status reports the
// outcome.
func TestASourceThatHasEndedBeforeAControllerRanAgain(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		then   func(*town)
		state  metav1.ConditionStatus
		says   string
		places string
	}{
		"the copy goes on":    {(*town).rise, metav1.ConditionTrue, "goes on with its state on node", "b"},
		"the copy never does": {func(w *town) { w.clock.Step(61 * time.Minute) }, metav1.ConditionFalse, "is given up", "a"},
		"the copy fails":      {func(w *town) { w.fail("StartError") }, metav1.ConditionFalse, "is given up", "a"},
	} {
		w, p := late(t, func(*town) {})
		o := w.move()
		cond := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
		if o.Status.Phase.Over() || cond.Status != metav1.ConditionUnknown || cond.Reason != "Kept" || w.places() != "a b" || len(p.leftovers()) != 1 {
			t.Errorf("%s: before that it is %s: %s; %+v; %s", what, o.Status.Phase, o.Status.Message, cond, w.everyone())
		}
		c.then(w)
		p.further(10, w.lonely)
		o = w.move()
		cond = meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
		if o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, c.says) || cond.Status != c.state || w.places() != c.places || len(p.leftovers()) > 0 {
			t.Errorf("%s: it is %s: %s; %+v; %s", what, o.Status.Phase, o.Status.Message, cond, w.everyone())
		}
	}
}

// Where no copy can go on with it, it is lost, and said to be.
func TestASourceThatHasEndedAndNoCopyIsLeft(t *testing.T) {
	t.Parallel()
	w, p := late(t, (*town).takeCopies)
	o := w.move()
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
	if o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "what the pod had in memory is lost: the source has ended") || c.Status != metav1.ConditionFalse || c.Reason != "StateLost" {
		t.Errorf("it is %s: %s; %+v", o.Status.Phase, o.Status.Message, c)
	}
	if w.places() != "a" || len(p.leftovers()) > 0 {
		t.Errorf("%s", w.everyone())
	}
}

// A copy on a node that no longer answers does not go when its hour is over. The migration ends all the same, and says that the state is
// given up. The source is stopped for as long as the copy may run.
func TestACopyThatDoesNotGoWhenItsHourIsOver(t *testing.T) {
	t.Parallel()
	w, p := late(t, func(*town) {})
	source := w.move().Status.Source.PodUID
	w.hold(true)
	w.dies("b")
	w.clock.Step(61 * time.Minute)
	p.further(10, w.lonely)
	o := w.move()
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
	if o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "is given up") || c.Status != metav1.ConditionFalse {
		t.Errorf("it is %s: %s; %+v", o.Status.Phase, o.Status.Message, c)
	}
	if len(p.leftovers()) != 1 || !w.agents.stopped[source] {
		t.Error("the source was let run beside its copy")
	}
	w.hold(false)
	p.further(10, w.lonely)
	if w.places() != "a" || len(p.leftovers()) > 0 || w.agents.stopped[source] {
		t.Errorf("%s; stopped %v", w.everyone(), w.agents.stopped)
	}
}
