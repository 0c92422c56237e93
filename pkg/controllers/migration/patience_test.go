package migration_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// lapses has the source's kubelet end what stands still for longer than its liveness probe bears, before a copy may be there.
func (w *town) lapses(nc *v1alpha1.NodeCheckpoint) bool {
	if w.probe == nil || nc.Status.Source.StoppedTime == nil || !w.agents.stopped[nc.Spec.PodUID] || nc.Spec.Stage == v1alpha1.StageRestore || nc.Spec.Stage.GivenUp() {
		return w.agents.lapsed && !nc.Spec.Stage.GivenUp()
	}
	bears := time.Duration(w.probe.PeriodSeconds*(w.probe.FailureThreshold-1)) * time.Second
	if w.clock.Since(nc.Status.Source.StoppedTime.Time) < bears {
		return false
	}
	w.agents.lapsed, w.agents.stopped[nc.Spec.PodUID] = true, false
	return true
}

// withoutController runs no controller for a time, only agents and kubelets.
func withoutController(seconds int) func(*town) {
	return func(w *town) {
		for range seconds {
			w.live()
			w.clock.Step(time.Second)
		}
	}
}

// remembers expects that no kubelet has ended a source that stood still.
func remembers(found func(*town)) func(*town) {
	return func(w *town) {
		found(w)
		w.Cleanup(func() {
			if w.agents.lapsed {
				w.Errorf("the source was ended by its liveness probe, with what it had in memory")
			}
		})
	}
}

// Without a controller it is the source's agent that lets it go on, before its liveness probe ends it with all that it has in memory.
func TestASourceRunsOnWithoutItsController(t *testing.T) {
	t.Parallel()
	owned := func(w *town) { w.rollout(1); w.able() }
	alone := func(w *town) { owned(w); w.adopts = false; bare(w) }
	const over = "its time is over" // which both agents say
	for _, j := range []journey{
		{name: "checkpointing", town: owned, during: at("Checkpointing", withoutController(30))},
		{name: "transferring", town: owned, during: at("Transferring", withoutController(30)), deaths: true, since: 8}, // also over the note of what the probe leaves
		{name: "bare", town: alone, during: at("Transferring", withoutController(30))},
	} {
		j.town, j.ask, j.phase, j.says, j.places = remembers(probed(j.town, 10)), ask("Checkpoint"), "RolledBack", over, "a"
		j.test(t)
	}
}

// The time of a NodeCheckpoint ends 4 s before the probe would end the source. It counts from when the NodeCheckpoint was created, until
// the agent says since when the source is stopped, by the agent's clock. It is 5 min from now without a probe, with a patient one, or
// once nothing is left that a probe could end.
func TestForHowLongAgentsHoldASource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		period int32 // of a probe that may fail three times; 0: there is none
		// stopped is when the agent stops the source, by its clock, after the NodeCheckpoint is created; 0: it has not yet. later is when
		// the test looks.
		stopped, later, made, want time.Duration
		ended                      bool // what was stopped has ended, after its state was written
	}{
		"no probe":                  {0, 0, 0, 5 * time.Minute, 5 * time.Minute, false},
		"no probe, looked at later": {0, time.Second, 130 * time.Second, 5 * time.Minute, 130*time.Second + 5*time.Minute, false},
		"patient":                   {600, time.Second, 130 * time.Second, 5 * time.Minute, 130*time.Second + 5*time.Minute, false},
		"patient, but not for ever": {120, time.Second, 130 * time.Second, 236 * time.Second, 237 * time.Second, false},
		"not stopped":               {10, 0, 9 * time.Second, 16 * time.Second, 16 * time.Second, false},
		"stopped":                   {10, 3 * time.Second, 5 * time.Second, 16 * time.Second, 19 * time.Second, false},
		"stopped, some time ago":    {10, 3 * time.Second, 14 * time.Second, 16 * time.Second, 19 * time.Second, false},
		"by a clock that is ahead":  {10, 33 * time.Second, 5 * time.Second, 16 * time.Second, 49 * time.Second, false},
		"by a clock that is behind": {10, -2 * time.Second, 5 * time.Second, 16 * time.Second, 14 * time.Second, false},
		"almost as short as may be": {6, time.Second, 2 * time.Second, 8 * time.Second, 9 * time.Second, false},
		"ended, with nothing left":  {10, 3 * time.Second, 5 * time.Second, 16 * time.Second, 305 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTown(t, 1)
			town := func(w *town) { w.rollout(1); w.able(); w.agents.stuck = true }
			if c.period > 0 {
				town = probed(town, c.period)
			}
			town(w)
			patiently(w)
			p := w.start()
			nc := p.untilHeld()
			made := w.clock.Now().Add(-time.Second) // turns take as long
			if got := nc.Spec.Expires.Sub(made); got != c.made {
				t.Errorf("it is made for %s, want %s", got, c.made)
			}
			nc.Status.Source = &v1alpha1.CheckpointSide{State: v1alpha1.CheckpointWorking}
			if c.stopped != 0 {
				nc.Status.Source.StoppedTime = ptr.To(metav1.NewMicroTime(made.Add(c.stopped)))
			}
			if c.ended {
				nc.Status.Source.State, nc.Status.Source.Disturbance = v1alpha1.CheckpointCheckpointed, v1alpha1.CheckpointEnded
			}
			w.must(w.api.Status().Update(t.Context(), nc))
			w.clock.SetTime(made.Add(c.later))
			w.must(p.turn())
			if got := p.untilHeld().Spec.Expires.Sub(made); got != c.want {
				t.Errorf("it is held for %s, want %s", got, c.want)
			}
		})
	}
}

// untilHeld goes on until agents are to hold a state.
func (p *process) untilHeld() *v1alpha1.NodeCheckpoint {
	p.Helper()
	for range 20 {
		list := &v1alpha1.NodeCheckpointList{}
		p.must(p.api.List(p.Context(), list))
		for i := range list.Items {
			if list.Items[i].Spec.PodNamespace == p.namespace {
				return &list.Items[i]
			}
		}
		p.must(p.turn())
		p.must(p.loop())
	}
	p.Fatal("nothing is stopped")
	return nil
}

// A container whose startup probe has not succeeded yet is not stopped: the kubelet does not report how often that has failed already.
func TestAPodThatIsStartingIsNotStopped(t *testing.T) {
	t.Parallel()
	for started, phase := range map[bool]v1alpha1.MigrationPhase{false: v1alpha1.MigrationRefused, true: v1alpha1.MigrationSucceeded} {
		w := newTown(t, 1)
		w.gating = true
		w.change = func(s *corev1.PodSpec) {
			s.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		}
		demanding(func(w *town) { w.rollout(1); w.able() })(w)
		pod := w.pods()[0]
		pod.Status.ContainerStatuses[0].Started = &started
		w.must(w.api.Status().Update(t.Context(), &pod))
		w.must(w.api.Get(t.Context(), client.ObjectKeyFromObject(&pod), &pod))
		w.asks(pod.Name, by("Checkpoint"))
		if o := w.migrate(nil)[0]; o.Status.Phase != phase {
			t.Errorf("started %t: it is %s: %s", started, o.Status.Phase, o.Status.Message)
		}
	}
}
