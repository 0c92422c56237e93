package migration_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// rejects has the target's kubelet not admit so many pods in the source's place. deletes: their owner deletes them at once, as a StatefulSet's controller does. named: it says something of their
// containers, too, which it has never made. It says when those were made.
func (h *house) rejects(times *int, deletes, named bool) *[]time.Time {
	h.Helper()
	live, last, made := h.late, "", &[]time.Time{}
	h.late = func() {
		h.unready = *times > 0
		if c := h.copied(); c != nil && c.DeletionTimestamp == nil {
			if string(c.UID) != last {
				last = string(c.UID)
				*made = append(*made, h.clock.Now())
			}
			if c.Spec.NodeName != "" && c.Status.Phase == corev1.PodPending && *times > 0 {
				*times--
				c.Status.Phase, c.Status.Reason, c.Status.Message = corev1.PodFailed, "NodeShutdown", "Pod was rejected as the node is shutting down."
				if named {
					c.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}}}
				}
				h.must(h.api.Status().Update(h.Context(), c))
				if deletes {
					h.bury(c)
				}
			}
		}
		live()
	}
	return made
}

// rested expects that no two pods were made within half a minute, but once: who goes on with what another has begun knows of no pod of that one's.
func (h *house) rested(made []time.Time, least, most int) {
	h.Helper()
	early := 0
	for i := 1; i < len(made); i++ {
		if made[i].Sub(made[i-1]) < 30*time.Second {
			early++
		}
	}
	if len(made) < least || len(made) > most || early > 1 {
		h.Errorf("%d pods were made, want %d to %d, and %d of them early", len(made), least, most, early)
	}
}

// A pod that the target's kubelet does not admit has lost nothing: it is made again, after a rest, whoever dies over it.
func TestAPodThatItsNodeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		kind           string
		deletes, named bool
	}{"set": {"StatefulSet", true, false}, "set-seen": {"StatefulSet", false, false}, "job": {"Job", false, true}} {
		of := func(w *town) {
			times := 1
			h := w.house(c.kind)
			if c.kind == "Job" {
				h.counting()
			}
			made := h.rejects(&times, c.deletes, c.named)
			w.Cleanup(h.expectNothingLeft)
			w.Cleanup(func() { h.rested(*made, 2, 2) })
		}
		journey{name: name, town: demanding(of), ask: ask("Checkpoint"), phase: "Succeeded", says: "in place of", places: "b", state: metav1.ConditionTrue, deaths: true, since: 24}.test(t)
	}
}

// One that is never admitted is made again as long as its state is kept.
func TestAPodThatItsNodeGoesOnRefusing(t *testing.T) {
	t.Parallel()
	for what, deletes := range map[string]bool{"stays": false, "is deleted": true} {
		w := newTown(t, 1)
		w.gating = true
		h := w.house("StatefulSet")
		times := 1000
		made := h.rejects(&times, deletes, false)
		w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 70 * time.Second })
		p := w.further(w.start(), func() bool { a := w.actions(t.Context()); return len(a) > 0 && over(a) })
		p.goes(100)
		o := w.move()
		if kept := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState); o.Status.Phase.Over() || kept.Reason != "Kept" {
			t.Errorf("it %s: it is %s: %s; %+v; %s", what, o.Status.Phase, o.Status.Message, kept, w.everyone())
		}
		h.rested(*made, 6, 9)
		times = 0
		w.further(p, func() bool { return w.move().Status.Phase.Over() })
		if o = w.move(); !strings.Contains(o.Status.Message, "goes on with its state on node "+w.name("b")) || !restored(&w.pods()[0]) {
			t.Errorf("it %s: it is %s: %s; %s", what, o.Status.Phase, o.Status.Message, w.everyone())
		}
		h.expectNothingLeft()
		w.rest(p)
	}
}
