package migration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// seconds has everybody go on for so long, or until the migration is over.
func (p *process) seconds(n int) {
	p.Helper()
	for range n {
		p.must(p.turn())
		p.must(p.loop())
		p.leftovers()
		if p.move().Status.Phase.Over() {
			return
		}
	}
}

// A healthy node may have no room for ever, as its kubelet says and no scheduler knows. The pod starts anew when the migration's time is
// over, unless a policy forbids that. The StatefulSet controller deletes the pod before a controller reads why it was rejected; a Job's
// pod stays.
func TestANodeThatHasNoRoomByItsKubelet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, reason string
		required     bool
	}{
		"topology": {"StatefulSet", "TopologyAffinityError", false},
		"cpu":      {"Job", "OutOfcpu", false},
		"required": {"StatefulSet", "UnexpectedAdmissionError", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTown(t, 1)
			w.gating = true
			h := w.house(c.kind)
			if c.kind == "Job" {
				h.counting()
			}
			times := 1000
			h.rejects(&times, c.kind == "StatefulSet", false, c.reason)
			if w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 70 * time.Second }); c.required {
				w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{RequireState: true}}
			}
			p := w.further(w.start(), func() bool { return len(w.evicted) > 0 })
			said, ends := false, w.late
			w.late = func() {
				said = said || strings.Contains(w.move().Status.Message, "to have it begin anew, delete NodeCheckpoint "+w.actions(t.Context())[0].Name)
				ends()
			}
			p.seconds(200)
			o := w.move()
			if !said || o.Status.Phase.Over() == c.required || !c.required && o.Status.Phase != v1alpha1.MigrationSucceededWithoutState {
				t.Errorf("it is %s: %s; said how to have it begin anew: %t; %s", o.Status.Phase, o.Status.Message, said, w.everyone())
			}
			times = 0
			w.further(p, func() bool { return w.move().Status.Phase.Over() })
			h.expectNothingLeft()
			w.rest(p)
		})
	}
}

// rolls gives the town's StatefulSet another template, of which no pod of so low a number is to be, as its controller has seen.
func (h *house) rolls(partition int) {
	h.Helper()
	set := &appsv1.StatefulSet{}
	set.Namespace, set.Name = h.namespace, "house"
	change := fmt.Sprintf(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":%d}},"template":{"metadata":{"annotations":{"restartedAt":"now"}}}}}`, partition)
	h.must(h.api.Patch(h.Context(), set, client.RawPatch("application/merge-patch+json", []byte(change))))
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, CurrentRevision: "house-1", UpdateRevision: "house-2"}
	h.must(h.api.Status().Update(h.Context(), set))
}

// A StatefulSet's rolling update deletes a pod of the former template before it is started (podManagementPolicy Parallel): that would go
// on for ever. A pod that the update has not come to yet, or is not to replace, is restored.
func TestAPodThatIsRolledAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		partition, deleted int
		anew               bool
	}{"replaced": {0, 1000, true}, "not yet": {0, 0, false}, "below the partition": {1, 1, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTown(t, 1)
			w.gating = true
			h := w.house("StatefulSet")
			h.none, w.crowded = true, map[string]bool{"b": true}
			w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 5 * time.Minute })
			p := w.further(w.start(), func() bool { return w.copied() != nil })
			h.rolls(c.partition)
			h.none, w.crowded = false, nil
			deleted, live := 0, w.late
			w.late = func() {
				if pod := w.copied(); deleted < c.deleted && pod != nil && pod.DeletionTimestamp == nil && restored(pod) {
					deleted++
					h.finishDeletion(pod)
				}
				live()
			}
			p.seconds(100)
			o := w.move()
			if deleted > 1 || c.anew != (o.Status.Phase == v1alpha1.MigrationSucceededWithoutState) || !c.anew && o.Status.Phase != v1alpha1.MigrationSucceeded {
				t.Errorf("%d pods of the former template were deleted, and it is %s: %s; %s", deleted, o.Status.Phase, o.Status.Message, w.everyone())
			}
			h.expectNothingLeft()
			w.rest(p)
		})
	}
}

// Who drains a target, and has the pod go which is not begun yet, has it go for as long as the node is cordoned.
func TestADrainedTargetStaysDrained(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"in its time": false, "in the hour after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, h, p := stalled(t, moments[after], after)
			w.cordon("b")
			w.must(w.api.Delete(t.Context(), w.copied()))
			for range 100 {
				p.seconds(1)
				if c := w.copied(); c != nil && c.DeletionTimestamp == nil {
					t.Fatalf("pod %s is made for the node that was drained: %s", c.Name, w.move().Status.Message)
				}
			}
			if said := w.actions(t.Context())[0].Status.Message; !after && !strings.Contains(said, "is made again once node "+w.name("b")+" takes it: it is cordoned") {
				t.Errorf("it is told: %s", said)
			}
			node := &corev1.Node{}
			w.must(w.api.Get(t.Context(), client.ObjectKey{Name: w.name("b")}, node))
			node.Spec.Unschedulable, w.unready = false, false
			w.must(w.api.Update(t.Context(), node))
			w.further(p, func() bool { return w.move().Status.Phase.Over() })
			if o := w.move(); !restored(&w.pods()[0]) || o.Status.Phase != v1alpha1.MigrationSucceeded && !after {
				t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, w.everyone())
			}
			h.expectNothingLeft()
			w.rest(p)
		})
	}
}

// How long nothing has kept a pod from going on counts from when it was made, not from one before it that found no room and was taken away.
func TestAPodThatIsMadeAgainHasItsOwnTime(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	h := w.house("StatefulSet")
	w.crowded = map[string]bool{"b": true}
	w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 90 * time.Second })
	p := w.further(w.start(), func() bool { return w.copied() != nil })
	p.seconds(50)
	first := w.copied()
	if first == nil || first.Spec.NodeName != "" {
		t.Fatalf("it is not there, or has a node: %s", w.everyone())
	}
	w.crowded, w.quota = nil, 60
	w.finishDeletion(first)
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if o := w.move(); w.quota > 0 || !restored(&w.pods()[0]) {
		t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, w.everyone())
	}
	h.expectNothingLeft()
	w.rest(p)
}

// Who goes on with a clock that is behind that of who has made the last pod does not wait until it has caught up.
func TestAPodIsMadeAgainByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	w, h, p := stalled(t, moments[false], false)
	w.must(w.api.Delete(t.Context(), w.copied()))
	w.must(p.turn())
	w.clock.SetTime(w.clock.Now().Add(-10 * time.Minute))
	w.unready = false
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if o := w.move(); o.Status.Phase != v1alpha1.MigrationSucceeded {
		t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, w.everyone())
	}
	h.expectNothingLeft()
	w.rest(p)
}
