package migration_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// shutsDown is what a kubelet says of a pod that comes while its node is shut down.
const shutsDown = "NodeShutdown"

// rejects has the target's kubelet reject so many replacements. deletes: their owner deletes them at once, as the StatefulSet controller
// does. named: the kubelet also reports their containers, which it has never created. rejects returns when the replacements were
// created.
func (h *house) rejects(times *int, deletes, named bool, reason string) *[]time.Time {
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
				c.Status.Phase, c.Status.Reason, c.Status.Message = corev1.PodFailed, reason, "Pod was rejected."
				if named {
					c.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}}}
				}
				h.must(h.api.Status().Update(h.Context(), c))
				if deletes {
					h.finishDeletion(c)
				}
			}
		}
		live()
	}
	return made
}

// rested expects that no two pods were created within half a minute, except so many: a process that takes over from another does not
// know of its pod.
func (h *house) rested(made []time.Time, least, most, soon int) {
	h.Helper()
	early := 0
	for i := 1; i < len(made); i++ {
		if made[i].Sub(made[i-1]) < 30*time.Second {
			early++
		}
	}
	if len(made) < least || len(made) > most || early > soon {
		h.Errorf("%d pods were made, want %d to %d, and %d of them early: %v", len(made), least, most, early, made)
	}
}

// A pod that the target's kubelet does not admit has lost nothing: the controller recreates it after a while, also where a process dies
// over it.
func TestAPodThatItsNodeRefuses(t *testing.T) {
	t.Parallel()
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
			made := h.rejects(&times, c.deletes, c.named, shutsDown)
			w.Cleanup(h.expectNothingLeft)
			w.Cleanup(func() { h.rested(*made, 2, 2, 1) })
		}
		journey{name: name, town: demanding(of), ask: ask("Checkpoint"), phase: "Succeeded", says: "in place of", places: "b", state: metav1.ConditionTrue, deaths: true, since: 24}.test(t)
	}
}

// A pod that is never admitted, for a reason other than room, is recreated as long as its state is kept. If it is deleted before the
// controller sees it, the reason is unknown: a policy does not let it start anew.
func TestAPodThatItsNodeGoesOnRefusing(t *testing.T) {
	t.Parallel()
	for what, deletes := range map[string]bool{"stays": false, "is deleted": true} {
		w := newTown(t, 1)
		w.gating = true
		var h *house
		of := func(w *town) { h = w.house("StatefulSet") }
		if deletes {
			of = demanding(of)
		}
		of(w)
		times := 1000
		made := h.rejects(&times, deletes, false, shutsDown)
		w.admission = func(c *corev1.Pod) error {
			if restored(c) && over(w.actions(t.Context())) && !w.noted("mckube.io/borne", w.clock.Now().UTC().Format(time.RFC3339)) {
				w.Errorf("it is not on record that a pod is made")
			}
			return nil
		}
		w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 70 * time.Second })
		p := w.further(w.start(), func() bool { a := w.actions(t.Context()); return len(a) > 0 && over(a) })
		p.goes(100)
		o := w.move()
		if kept := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState); o.Status.Phase.Over() || kept.Reason != "Kept" {
			t.Errorf("it %s: it is %s: %s; %+v; %s", what, o.Status.Phase, o.Status.Message, kept, w.everyone())
		}
		h.rested(*made, 6, 9, 0)
		times = 0
		w.further(p, func() bool { return w.move().Status.Phase.Over() })
		if o = w.move(); !strings.Contains(o.Status.Message, "goes on with its state on node "+w.name("b")) || !restored(&w.pods()[0]) {
			t.Errorf("it %s: it is %s: %s; %s", what, o.Status.Phase, o.Status.Message, w.everyone())
		}
		h.expectNothingLeft()
		w.rest(p)
	}
}

// noted tells whether a NodeCheckpoint of the town has an annotation of that value; of any, where none is named.
func (w *town) noted(key, value string) bool {
	w.Helper()
	list := &v1alpha1.NodeCheckpointList{}
	w.must(w.api.List(w.Context(), list))
	for _, nc := range list.Items {
		if got := nc.Annotations[key]; got != "" && (value == "" || got == value) {
			return true
		}
	}
	return false
}

// stalled is a StatefulSet's pod that was evicted, and is not to start anew, so long before the migration's time is over. Its node has
// taken the replacement and has not started it. after: the time is over by then.
func stalled(t *testing.T, limit time.Duration, after bool) (w *town, h *house, p *process) {
	t.Helper()
	w = newTown(t, 1)
	w.gating = true
	demanding(func(w *town) { h = w.house("StatefulSet") })(w)
	w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = limit })
	p = w.taken(w.further(w.start(), func() bool { return len(w.evicted) > 0 }))
	if after {
		p = w.further(p, func() bool { return over(w.actions(t.Context())) })
	}
	return w, h, p
}

// moments are how long the time of a migration is of which something happens in it, and in the hour after it.
var moments = map[bool]time.Duration{false: 20 * time.Minute, true: 70 * time.Second}

// A drain, a preemption or a taint may delete a pod before it is started, and its kubelet lets it go some moments later. It has lost
// nothing either.
func TestAPodThatIsDrainedBeforeItIsBegun(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"StatefulSet", "Job"} {
		of := func(w *town) {
			h := w.house(kind)
			w.unready = true
			w.Cleanup(h.expectNothingLeft)
		}
		drained := func(w *town) func(int, *process) {
			done := false
			return func(int, *process) {
				if c := w.copied(); c != nil && c.Spec.NodeName != "" && !done {
					done, w.unready = true, false
					w.must(w.api.Delete(w.Context(), c))
				}
			}
		}
		journey{name: kind, town: demanding(of), ask: ask("Checkpoint"), during: drained, phase: "Succeeded", says: "in place of", places: "b", state: metav1.ConditionTrue, deaths: true, since: 24}.test(t)
	}
	t.Run("in-the-hour-after", func(t *testing.T) {
		t.Parallel()
		w, h, p := stalled(t, moments[true], true)
		w.must(w.api.Delete(t.Context(), w.copied()))
		p.leftovers()
		w.unready = false
		w.further(p, func() bool { return w.move().Status.Phase.Over() })
		if o := w.move(); !strings.Contains(o.Status.Message, "goes on with its state on node "+w.name("b")) || !restored(&w.pods()[0]) {
			t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, w.everyone())
		}
		h.expectNothingLeft()
		w.rest(p)
	})
}

// A pod that was started has used its state, although it may be gone, and whatever its kubelet reports: after its runtime has forgotten
// the container (evicted), or after a restart without admitting the pod (rejected). No other pod is created from the state.
func TestAPodThatWasBegunAndLooksAsIfItWasNot(t *testing.T) {
	t.Parallel()
	unknown := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}
	for name, ends := range map[string]func(*town, *corev1.Pod){
		"evicted": func(_ *town, c *corev1.Pod) {
			c.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: 1, State: unknown, LastTerminationState: unknown}}
		},
		"rejected": func(_ *town, c *corev1.Pod) { c.Status.ContainerStatuses = nil },
		"gone":     func(w *town, c *corev1.Pod) { w.finishDeletion(c) },
	} {
		for after, limit := range moments {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w, h, p := stalled(t, limit, after)
				w.agents.stuck = true // it says nothing of what the runtime has made
				first := w.copied()
				w.rise()
				w.unready = true
				for range 3 {
					w.must(p.turn())
					p.leftovers()
				}
				c := w.copied()
				c.Status.Phase, c.Status.Reason = corev1.PodFailed, "Evicted"
				if ends(w, c); name != "gone" {
					w.must(w.api.Status().Update(t.Context(), c))
				}
				w.agents.stuck = false
				live := w.late
				w.late = func() {
					if c := w.copied(); c != nil && c.UID != first.UID && restored(c) {
						w.Errorf("after %t: a second pod is made of the state: %s", after, w.move().Status.Message)
					}
					live()
				}
				w.further(p, func() bool { return w.move().Status.Phase.Over() })
				if o := w.move(); o.Status.Phase == v1alpha1.MigrationSucceeded || restored(&w.pods()[0]) {
					t.Errorf("after %t: it is %s: %s; %s", after, o.Status.Phase, o.Status.Message, w.everyone())
				}
				h.expectNothingLeft()
			})
		}
	}
}

// A refusal that lasts a moment, each time that the pod is created, does not count as a long one. The status repeats its words as long
// as it lasts.
func TestAPodThatIsRefusedEachTimeForAMoment(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	var h *house
	demanding(func(w *town) { h = w.house("StatefulSet") })(w)
	webhook := 0
	w.admission = func(pod *corev1.Pod) error {
		if restored(pod) && webhook > 0 {
			webhook--
			return apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, errors.New("failed calling webhook"))
		}
		return nil
	}
	w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 20 * time.Minute })
	p := w.further(w.start(), func() bool { return len(w.evicted) > 0 })
	webhook = 1
	times, said, armed := 1, 0, false
	h.rejects(&times, true, false, shutsDown)
	w.further(p, func() bool {
		if times == 0 && !armed {
			armed, webhook, w.quota = true, 1, 20
		}
		if strings.Contains(w.actions(t.Context())[0].Status.Message, "exceeded quota: few") {
			said++
		}
		return w.move().Status.Phase.Over()
	})
	if o := w.move(); o.Status.Phase != v1alpha1.MigrationSucceeded || said < 15 {
		t.Errorf("it is %s: %s; the quota's words were told for %d s; %s", o.Status.Phase, o.Status.Message, said, w.everyone())
	}
	h.expectNothingLeft()
	w.rest(p)
}

// The cores that were kept for the pod are kept again from when its node has refused it until the next has its own.
func TestCoresAreKeptForAPodThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	h := w.house("StatefulSet")
	times := 1
	h.rejects(&times, true, false, shutsDown)
	w.asks(w.first(), by("Checkpoint"))
	p := w.further(w.start(), func() bool { return times == 0 })
	for range 5 {
		w.must(p.turn())
	}
	for _, p := range []*process{p, w.start()} {
		p.look()
		if n, _ := p.store.Snapshot().NodeView(w.name("b")); len(n.Reservations) != 1 {
			t.Errorf("of node %s is kept for the pod that is to be made again: %+v; %s", n.Name, n.Reservations, w.everyone())
		}
	}
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if o := w.move(); o.Status.Phase != v1alpha1.MigrationSucceeded {
		t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, w.everyone())
	}
	h.expectNothingLeft()
	w.rest(p)
}

// Where the node is gone there is nothing to make the pod of: its owner's begins anew at once.
func TestAPodIsNotMadeAgainForANodeThatIsGone(t *testing.T) {
	t.Parallel()
	w, h, p := stalled(t, moments[false], false)
	w.vanishes("b")
	w.unready = false
	began, made := w.clock.Now(), false
	w.further(p, func() bool {
		made = made || w.copied() != nil
		return w.move().Status.Phase == v1alpha1.MigrationRollingBack
	})
	if took := w.clock.Now().Sub(began); took > 10*time.Second || made {
		t.Errorf("after %s it is known that the state is lost; made again: %t; %s", took, made, w.move().Status.Message)
	}
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	h.expectNothingLeft()
}
