package migration_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// taken goes on until the target's kubelet has taken the pod in the source's place, of which it begins nothing.
func (w *town) taken(p *process) *process {
	w.Helper()
	w.unready = true
	return w.further(p, func() bool { c := w.copied(); return c != nil && c.Spec.NodeName != "" })
}

// botches has that kubelet say that it cannot make the pod's container, for that reason.
func (w *town) botches(reason string) {
	w.Helper()
	c := w.copied()
	c.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "failed to sync configmap cache: timed out waiting for the condition"},
	}}}
	w.must(w.api.Status().Update(w.Context(), c))
}

// goes has everybody go on for some seconds.
func (p *process) goes(seconds int) {
	p.Helper()
	for range seconds {
		p.must(p.turn())
		p.must(p.loop())
		p.leftovers()
	}
}

// What a kubelet cannot do for a while does not cost the state of a source that has gone, however late it begins: its runtime restarts,
// or it has not heard from the API server. The state is given up after as long as a restore may take.
func TestAKubeletThatFailsForAWhile(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"CreateContainerConfigError", "CreateContainerError"} {
		for what, mends := range map[string]bool{"for a while": true, "for ever": false} {
			w := newTown(t, 1)
			w.gating = true
			h := w.house("StatefulSet")
			w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 10 * time.Minute })
			p := w.taken(w.further(w.start(), func() bool { return len(w.evicted) > 0 }))
			p.goes(60) // its volume is attached
			w.botches(reason)
			p.goes(40)
			if o := w.move(); o.Status.Phase != v1alpha1.MigrationRestoring || !strings.Contains(o.Status.Message, reason) {
				t.Errorf("%s %s: it is %s: %s", reason, what, o.Status.Phase, o.Status.Message)
			}
			if mends {
				w.rise()
			}
			began := w.clock.Now()
			w.further(p, func() bool { return w.move().Status.Phase.Over() })
			want := map[bool]v1alpha1.MigrationPhase{true: v1alpha1.MigrationSucceeded, false: v1alpha1.MigrationSucceededWithoutState}[mends]
			if o := w.move(); o.Status.Phase != want || restored(&w.pods()[0]) != mends || !mends && w.clock.Since(began) > time.Minute {
				t.Errorf("%s %s: after %s it is %s: %s; %s", reason, what, w.clock.Since(began), o.Status.Phase, o.Status.Message, w.everyone())
			}
			h.expectNothingLeft()
			w.rest(p)
		}
	}
}

// The same holds in the hour for which the state is kept after the migration's time. The time counts from when the kubelet began to
// fail, even if that was before the hour. While the node is dead no time counts.
func TestAKubeletThatFailsForAWhileInTheHourAfter(t *testing.T) {
	t.Parallel()
	for what, mends := range map[string]bool{"for a while": true, "for ever": false} {
		w, h, p := orphaned(t, 70*time.Second, true)
		w.botches("CreateContainerError")
		p = w.further(p, func() bool { return over(w.actions(t.Context())) })
		p.goes(60)
		w.back("b")
		p.goes(40)
		if o := w.move(); o.Status.Phase.Over() || !restored(w.copied()) {
			t.Fatalf("%s: it is %s: %s; %s", what, o.Status.Phase, o.Status.Message, w.everyone())
		}
		says := "its state was kept, and is given up"
		if mends {
			says = "goes on with its state on node " + w.name("b")
			w.rise()
		}
		p.goes(15)
		if o := w.move(); o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, says) {
			t.Errorf("%s: it is %s: %s; %s", what, o.Status.Phase, o.Status.Message, w.everyone())
		}
		h.expectNothingLeft()
		w.rest(p)
	}
}

// A pod that is begun after the migration's time has as long to go on with its state as one that is begun before.
func TestAPodThatIsBegunLate(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	h := w.house("StatefulSet")
	w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 70 * time.Second })
	p := w.taken(w.further(w.start(), func() bool { return len(w.evicted) > 0 }))
	p.goes(80)
	if a := w.actions(t.Context()); over(a) || rules.Phase(a[0].Status.Phase) != rules.RollingBack {
		t.Fatalf("its action is %s: %s", a[0].Status.Phase, a[0].Status.Message)
	}
	w.rise()
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if o := w.move(); !strings.Contains(o.Status.Message, "in place of") || !restored(&w.pods()[0]) {
		t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, w.everyone())
	}
	h.expectNothingLeft()
	w.rest(p)
}
