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
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// leaves has a node not be heard from, so that it takes no pod, or be back.
func (w *town) leaves(node string, away bool) {
	w.Helper()
	w.crowded, w.unready = map[string]bool{node: away}, away
	w.dies(node)
	if away {
		return
	}
	w.back(node)
	for _, p := range w.pods() { // what was bound before
		if p.Spec.NodeName == w.name(node) && p.Status.Phase == corev1.PodPending {
			w.run(&p)
		}
	}
}

// back has a node be heard from.
func (w *town) back(node string) {
	w.Helper()
	n := &corev1.Node{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Name: w.name(node)}, n))
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			n.Status.Conditions[i].Status = corev1.ConditionTrue
		}
	}
	w.must(w.api.Status().Update(w.Context(), n))
}

// orphaned is a StatefulSet's pod that was evicted, so long before the migration's time is over. Its target has its state and is away.
// bound: the target has taken the replacement before.
func orphaned(t *testing.T, limit time.Duration, bound bool) (w *town, h *house, p *process) {
	t.Helper()
	w = newTown(t, 1)
	w.gating = true
	h = w.house("StatefulSet")
	w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = limit })
	p = w.further(w.start(), func() bool { return len(w.evicted) > 0 })
	if bound {
		w.unready = true
		p = w.further(p, func() bool { c := w.copied(); return c != nil && c.Spec.NodeName != "" })
	}
	w.leaves("b", true)
	return w, h, p
}

// A node that has the state of a source that is gone, and takes no pod for a while, as its kubelet restarts, has the state still when it
// is back.
func TestAStateWaitsForItsNode(t *testing.T) {
	t.Parallel()
	for what, bound := range map[string]bool{"it has not taken the pod": false, "it has taken the pod": true} {
		w, h, p := orphaned(t, 20*time.Minute, bound)
		said := false
		for range 90 {
			w.must(p.turn())
			w.must(p.loop())
			said = said || strings.Contains(w.move().Status.Message, "waits for node "+w.name("b")+", which has its state: the node is not ready")
		}
		if o := w.move(); o.Status.Phase.Over() || said == bound {
			t.Errorf("%s: it is %s: %s; said so: %t", what, o.Status.Phase, o.Status.Message, said)
		}
		w.leaves("b", false)
		w.further(p, func() bool { return w.move().Status.Phase.Over() })
		if o := w.move(); o.Status.Phase != v1alpha1.MigrationSucceeded || w.places() != "b" || !strings.HasPrefix(w.pods()[0].Spec.Containers[0].Image, "mainspring.local/checkpoint/") {
			t.Errorf("%s: it is %s: %s; %s", what, o.Status.Phase, o.Status.Message, w.everyone())
		}
		h.expectNothingLeft()
		w.rest(p)
	}
}

// When the migration's time is over before that, the state is kept for an hour, which the status says; then it is given up.
func TestAStateWaitsForItsNodeForAnHour(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		bound, back bool
	}{"back": {false, true}, "back after it has taken the pod": {true, true}, "never back": {false, false}, "never back, with the pod": {true, false}} {
		w, h, p := orphaned(t, 70*time.Second, c.bound)
		p = w.further(p, func() bool { return over(w.actions(t.Context())) })
		w.clock.Step(30 * time.Minute)
		for range 3 {
			w.must(p.turn())
			w.must(p.loop())
			p.leftovers()
		}
		o := w.move()
		kept := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
		if o.Status.Phase.Over() || kept.Reason != "Kept" || !strings.Contains(o.Status.Message, "its state is kept on node "+w.name("b")) || w.copied() == nil {
			t.Fatalf("%s: it is %s: %s; %+v; %s", what, o.Status.Phase, o.Status.Message, kept, w.everyone())
		}
		says, state := "goes on with its state on node "+w.name("b"), metav1.ConditionTrue
		if c.back {
			w.leaves("b", false)
		} else {
			says, state = "is given up", metav1.ConditionFalse
			w.clock.Step(31 * time.Minute)
		}
		w.further(p, func() bool { return w.move().Status.Phase.Over() })
		o = w.move()
		kept = meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
		if o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, says) || kept.Status != state {
			t.Errorf("%s: it is %s: %s; %+v", what, o.Status.Phase, o.Status.Message, kept)
		}
		h.expectNothingLeft()
		w.leaves("b", false)
		w.rest(p)
	}
}

// A healthy node whose room another pod has taken may have none for ever. The pod starts anew when the migration's time is over, unless
// a policy forbids that.
func TestAStateDoesNotWaitForRoom(t *testing.T) {
	t.Parallel()
	for what, required := range map[string]bool{"it may begin anew": false, "it must not": true} {
		w := newTown(t, 1)
		w.gating = true
		h := w.house("StatefulSet")
		w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 70 * time.Second })
		p := w.further(w.start(), func() bool { return len(w.evicted) > 0 })
		w.crowded = map[string]bool{"b": true}
		if required {
			w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{RequireState: true}}
		}
		began := w.clock.Now()
		for range 5 * 60 {
			w.must(p.turn())
			w.must(p.loop())
			p.leftovers()
		}
		o := w.move()
		if over := o.Status.Phase.Over(); over == required || over && o.Status.Phase != v1alpha1.MigrationSucceededWithoutState && o.Status.Phase != v1alpha1.MigrationFailed {
			t.Errorf("%s: after %s it is %s: %s; %s", what, w.clock.Now().Sub(began), o.Status.Phase, o.Status.Message, w.everyone())
		}
		if required {
			w.crowded = nil
			w.further(p, func() bool { return w.move().Status.Phase.Over() })
		}
		if got := w.pods(); len(got) != 1 || strings.HasPrefix(got[0].Spec.Containers[0].Image, "mainspring.local/checkpoint/") != required {
			t.Errorf("%s: %s", what, w.everyone())
		}
		h.expectNothingLeft()
		w.rest(p)
	}
}

// taints gives a node a taint that no pod tolerates, as its kubelet does, or takes that away.
func (w *town) taints(node string, yes bool) {
	w.Helper()
	n := &corev1.Node{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Name: w.name(node)}, n))
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeDiskPressure })
	if yes {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule})
	}
	w.must(w.api.Update(w.Context(), n))
}

// offers has the agent of a node offer its cores to the scheduler, or not, as while it is started again.
func (w *town) offers(node string, yes bool) {
	w.Helper()
	n := &corev1.Node{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Name: w.name(node)}, n))
	slice := statetest.Slice(n, statetest.Cores(2)...)
	slice.UID = ""
	if yes {
		w.must(w.api.Create(w.Context(), slice))
	} else {
		w.must(w.api.Delete(w.Context(), slice))
	}
}

// If the node takes no pod for now, or no scheduler has reported a lack of room, the room is not known to be taken for ever: the state
// is kept.
func TestAStateIsKeptWhereTheSchedulerDoesNotReportALackOfRoom(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		word, says        string
		tainted, silenced bool
	}{
		"a taint":                {word: "node(s) had untolerated taint(s)", says: "the node has taint " + corev1.TaintNodeDiskPressure, tainted: true},
		"a taint, and no room":   {word: "Insufficient cpu", says: "the node has taint " + corev1.TaintNodeDiskPressure, tainted: true},
		"no cores":               {word: "cannot allocate all claims", says: "its agent offers no cores", silenced: true},
		"no scheduler":           {word: "", says: "it has not taken it yet"},
		"for a reason of others": {word: "node(s) had volume node affinity conflict", says: "volume node affinity conflict"},
	} {
		w := newTown(t, 1)
		w.gating = true
		h := w.house("StatefulSet")
		w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 70 * time.Second })
		p := w.further(w.start(), func() bool { return len(w.evicted) > 0 })
		w.crowded, w.word = map[string]bool{"b": true}, c.word
		w.taints("b", c.tainted)
		if c.silenced {
			w.offers("b", false)
		}
		said := false
		p = w.further(p, func() bool {
			said = said || strings.Contains(w.move().Status.Message, c.says)
			return over(w.actions(t.Context()))
		})
		for range 3 {
			w.must(p.turn())
			w.must(p.loop())
			p.leftovers()
		}
		o := w.move()
		kept := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState)
		if !said || o.Status.Phase.Over() || kept == nil || kept.Reason != "Kept" || w.copied() == nil {
			t.Fatalf("%s: it is %s: %s; said why: %t; %+v; %s", what, o.Status.Phase, o.Status.Message, said, kept, w.everyone())
		}
		w.crowded = nil
		w.taints("b", false)
		if c.silenced {
			w.offers("b", true)
		}
		w.further(p, func() bool { return w.move().Status.Phase.Over() })
		if o = w.move(); o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "goes on with its state on node "+w.name("b")) {
			t.Errorf("%s: it is %s: %s", what, o.Status.Phase, o.Status.Message)
		}
		h.expectNothingLeft()
		w.rest(p)
	}
}

// A node that a user deletes takes the state with it: the controller does not wait for that.
func TestAStateGoesWithItsNode(t *testing.T) {
	t.Parallel()
	w, h, p := orphaned(t, 20*time.Minute, false)
	w.must(p.turn())
	w.must(p.loop())
	w.vanishes("b")
	w.unready = false
	began := w.clock.Now()
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if o := w.move(); o.Status.Phase != v1alpha1.MigrationSucceededWithoutState || !strings.Contains(o.Status.Message, "is gone, and the pod's state with it") || w.clock.Now().Sub(began) > time.Minute {
		t.Errorf("it is %s after %s: %s", o.Status.Phase, w.clock.Now().Sub(began), o.Status.Message)
	}
	h.expectNothingLeft()
}

// A healthy node that does not start the pod that it has taken, as for a volume or a plugin, keeps the state for it: the pod is restored
// as soon as the node starts it.
func TestATargetThatDoesNotBeginThePodThatItHasTaken(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	h := w.house("StatefulSet")
	w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 70 * time.Second })
	p := w.further(w.start(), func() bool { return len(w.evicted) > 0 })
	w.unready = true
	p = w.further(p, func() bool { c := w.copied(); return c != nil && c.Spec.NodeName != "" })
	for range 200 {
		w.must(p.turn())
		w.must(p.loop())
		p.leftovers()
	}
	if o := w.move(); o.Status.Phase.Over() || o.Status.Phase == v1alpha1.MigrationRollingBack || !over(w.actions(t.Context())) {
		t.Fatalf("it is %s: %s; %s", o.Status.Phase, w.actions(t.Context())[0].Status.Message, w.everyone())
	}
	w.rise()
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if o := w.move(); !strings.Contains(o.Status.Message, "goes on with its state on node "+w.name("b")) || w.places() != "b" {
		t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, w.everyone())
	}
	h.expectNothingLeft()
	w.rest(p)
}
