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
)

// detain keeps a pod from going, as a node does that no longer answers; else it lets it go.
func (w *town) detain(name string, keep bool) {
	w.Helper()
	p := &corev1.Pod{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, p))
	p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == "example.test/away" })
	if keep {
		p.Finalizers = append(p.Finalizers, "example.test/away")
	}
	w.must(w.api.Update(w.Context(), p))
}

// further runs all actors until a condition holds. Time passes faster while the controller has nothing to write: it waits. Four seconds
// are no multiple of what it does every five, so that it comes to that, too.
func (w *town) further(p *process, until func() bool) *process {
	w.Helper()
	quiet, before := 0, w.writes
	for range 200 {
		if until() {
			return p
		}
		if quiet++; w.writes != before {
			quiet, before = 0, w.writes
		}
		if quiet > 3 {
			p.clock.Step(3 * time.Second)
		}
		err := p.turn()
		if err == nil {
			err = p.loop()
		}
		p = p.next(err)
		p.leftovers()
		w.lonely()
	}
	w.Fatalf("it does not come to that: %s; %+v", w.everyone(), w.move().Status)
	return nil
}

// dying is a StatefulSet whose pod was evicted from a node that does not answer, and whose action is over.
func dying(t *testing.T) (w *town, h *house, p *process) {
	t.Helper()
	w = newTown(t, 1)
	w.gating = true
	h = w.house("StatefulSet")
	w.asks(w.first(), by("Checkpoint"))
	p = w.further(w.start(), func() bool { return w.move().Status.Phase == v1alpha1.MigrationTransferring })
	w.detain("rt-1", true)
	h.absent = true // the owner makes no pod of a name that is there
	return w, h, w.further(p, func() bool { return over(w.actions(t.Context())) })
}

// A source that was evicted from a node that does not answer does not end. The target keeps its state when the time is over, and the
// owner is kept from creating its pod. As soon as the source is gone a replacement is restored.
func TestTheStateOfASourceThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	for what, happens := range map[string]func(*town, *process) *process{
		"gone when its node is": func(_ *town, p *process) *process { return p },
		"nobody was there":      func(w *town, _ *process) *process { w.clock.Step(20 * time.Minute); return w.start() },
		"its action is gone":    func(w *town, p *process) *process { w.tear(); return p },
	} {
		w, h, p := dying(t)
		source := w.move().Status.Source.PodUID
		p = happens(w, p)
		for range 3 {
			w.must(p.turn())
			w.must(p.loop())
			p.leftovers()
		}
		o := w.move()
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
		if o.Status.Phase.Over() || c.Reason != "Kept" || !strings.Contains(o.Status.Message, "its state is kept on node") {
			t.Errorf("%s: it is %s: %s; %+v", what, o.Status.Phase, o.Status.Message, c)
		}
		w.detain("rt-1", false)
		h.absent = false
		w.further(p, func() bool { return w.move().Status.Phase.Over() })
		o = w.move()
		c = meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
		if o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "pod "+w.namespace+"/rt-1 goes on with its state on node "+w.name("b")) || c.Status != metav1.ConditionTrue {
			t.Errorf("%s: it is %s: %s; %+v", what, o.Status.Phase, o.Status.Message, c)
		}
		replacement := w.pods()[0]
		if replacement.Annotations[mcv1.AnnotationReplaces] != string(source) || !strings.HasPrefix(replacement.Spec.Containers[0].Image, "mainspring.local/checkpoint/") || h.refused == 0 {
			t.Errorf("%s: %s, refused %d times", what, w.everyone(), h.refused)
		}
		h.expectNothingLeft()
		w.rest(p)
	}
}

// The state is kept for an hour, or until a user deletes the NodeCheckpoint. Then the owner creates its pod, and the status says so.
func TestAStateIsNotKeptForEver(t *testing.T) {
	t.Parallel()
	for what, ends := range map[string]func(*town){
		"an hour": func(w *town) { w.clock.Step(61 * time.Minute) },
		"deleted": func(w *town) {
			w.must(w.api.DeleteAllOf(w.Context(), &v1alpha1.NodeCheckpoint{}, client.MatchingLabels{v1alpha1.LabelMigrationAction: w.actions(w.Context())[0].Name}))
		},
	} {
		w, h, p := dying(t)
		p.leftovers()
		w.must(p.loop())
		ends(w)
		w.further(p, func() bool { return w.move().Status.Phase.Over() })
		o := w.move()
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
		if o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "is given up") || c.Status != metav1.ConditionFalse || c.Reason != "RestoreFailed" {
			t.Errorf("%s: it is %s: %s; %+v", what, o.Status.Phase, o.Status.Message, c)
		}
		h.expectNothingLeft()
		w.detain("rt-1", false)
		h.absent = false
		p.live()
		p.live()
		if got := w.pods(); len(got) != 1 || got[0].Spec.Containers[0].Image != "none" || len(w.agents.stopped) == 0 {
			t.Errorf("%s: %s", what, w.everyone())
		}
		w.rest(p)
	}
}

// So it is where the pod that was to go on with the state is on a node that no longer answers, and does not go.
func TestAReplacementThatDoesNotGoWhenItsHourIsOver(t *testing.T) {
	t.Parallel()
	w, h, p := dying(t)
	w.agents.cold = true
	w.detain("rt-1", false)
	h.absent = false
	p = w.further(p, func() bool {
		list := w.pods()
		return len(list) == 1 && list[0].Annotations[mcv1.AnnotationReplaces] != "" && list[0].Spec.NodeName != ""
	})
	w.detain("rt-1", true)
	h.absent = true
	w.dies("b")
	w.clock.Step(61 * time.Minute)
	p = w.further(p, func() bool { return w.move().Status.Phase.Over() })
	o := w.move()
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
	if o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "is given up") || c.Status != metav1.ConditionFalse {
		t.Errorf("it is %s: %s; %+v", o.Status.Phase, o.Status.Message, c)
	}
	w.detain("rt-1", false)
	w.further(p, func() bool { return len(p.leftovers()) == 0 })
	h.expectNothingLeft()
}

// A refusal that passes, of whomever and however he says so, is no reason to give up a state that is kept.
func TestARefusalOfSomeSecondsOnceTheActionIsOver(t *testing.T) {
	t.Parallel()
	for _, what := range refusing {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, h, p := dying(t)
			left := 3
			w.admission = func(p *corev1.Pod) error {
				if left--; restored(p) && left >= 0 {
					return onlyOurs[what](p)
				}
				return nil
			}
			w.detain("rt-1", false)
			h.absent = false
			w.further(p, func() bool { return w.move().Status.Phase.Over() })
			if o := w.move(); left >= 0 || !strings.Contains(o.Status.Message, "goes on with its state on node") {
				t.Errorf("%s: it is %s: %s", what, o.Status.Phase, o.Status.Message)
			}
			h.expectNothingLeft()
		})
	}
}

// What is given up in that hour is so at once, and no other pod is made of it.
func TestAStateThatIsGivenUpInTheHourAfter(t *testing.T) {
	t.Parallel()
	w, h, p := orphaned(t, 70*time.Second, true)
	p = w.further(p, func() bool { return over(w.actions(t.Context())) })
	former := w.copied().UID
	w.late = func() {
		if c := w.copied(); c != nil && c.UID != former {
			w.Errorf("another pod is made of the state")
		}
		h.live()
	}
	w.back("b")
	w.fail("StartError")
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if o := w.move(); o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "is given up") {
		t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, w.everyone())
	}
	h.expectNothingLeft()
	w.rest(p)
}
