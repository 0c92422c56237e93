package migration_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// ended is what an agent says of a container that has ended.
const ended = "container app: it was to stay paused, and has ended"

// stirs has the source's agent say how the source did not stay paused, and stop it again.
func (w *town) stirs(nc *v1alpha1.NodeCheckpoint) {
	side := nc.Status.Source
	switch {
	case side.State != v1alpha1.CheckpointCheckpointed:
		return
	case w.agents.anew || !w.there(nc):
		side.Disturbance, side.Message = v1alpha1.CheckpointEnded, ended
	case w.agents.awake && nc.Spec.Stage == v1alpha1.StageRestore:
		side.Disturbance, side.Message = v1alpha1.CheckpointResumed, "container app: somebody else resumed a container that was to stay paused"
	default:
		return
	}
	w.agents.stopped[nc.Spec.PodUID] = true
}

// disturb resumes the source, as a user may on its node, and has its agent see that.
func (w *town) disturb() {
	w.Helper()
	w.agents.awake = true
	w.agents.stopped[w.move().Status.Source.PodUID] = false
	w.checkpoints()
}

// end has the source end, and begin anew on its node, and its agent see that.
func (w *town) end() {
	w.Helper()
	w.agents.anew = true
	w.agents.stopped[w.move().Status.Source.PodUID] = false
	w.checkpoints()
}

// rise has the copy be ready.
func (w *town) rise() {
	w.Helper()
	w.unready = false
	for _, pod := range w.pods() {
		if pod.UID != w.move().Status.Source.PodUID && pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending {
			w.run(&pod)
		}
	}
}

// finish has the source come to its end.
func (w *town) finish() {
	w.Helper()
	for _, pod := range w.pods() {
		if pod.UID == w.move().Status.Source.PodUID {
			pod.Status.Phase = corev1.PodFailed
			w.must(w.api.Status().Update(w.Context(), &pod))
		}
	}
}

// relent has the town's budget let its pods go.
func (w *town) relent() {
	w.Helper()
	b := &policyv1.PodDisruptionBudget{}
	b.Namespace, b.Name = w.namespace, "budget"
	w.must(client.IgnoreNotFound(w.api.Delete(w.Context(), b)))
}

// from does things so many turns after a migration has come to a phase; while unready the copy is not ready by itself.
func from(phase v1alpha1.MigrationPhase, unready bool, do map[int]func(*town)) func(*town) func(int, *process) {
	return func(w *town) func(int, *process) {
		w.unready = unready
		turns := -1
		return func(_ int, p *process) {
			if turns < 0 && w.move().Status.Phase != phase {
				return
			}
			turns++
			if f := do[turns]; f != nil {
				f(w)
				p.look()
			}
		}
	}
}

// A source that is resumed beside its copy is stopped again, and one of the two stays. It is the source, which has newer state, if the
// copy has not served; else it is the copy, however long the source may not be evicted.
func TestASourceThatIsResumed(t *testing.T) {
	t.Parallel()
	owned := func(w *town) { w.rollout(1); w.able() }
	alone := func(w *town) { bare(w); w.able() }
	kept := map[int]func(*town){0: func(w *town) { w.disturb(); w.budget() }, 20: (*town).relent}
	const says = "the source does not stand still any longer: node "
	for _, j := range []journey{
		{name: "owned", town: owned, during: at("Verifying", (*town).disturb), phase: "Succeeded", says: "in place of", places: "b", deaths: true, since: 15},
		{name: "owned-early", town: owned, during: unready(at("Verifying", (*town).disturb)), phase: "RolledBack", says: says, places: "a", deaths: true, since: 13},
		{name: "owned-and-kept", town: owned, during: from("Verifying", false, kept), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "bare", town: alone, during: at("Verifying", (*town).disturb), phase: "Succeeded", says: "in place of", places: "b", deaths: true, since: 15, evictions: 1},
		{name: "bare-early", town: alone, during: unready(at("Verifying", (*town).disturb)), phase: "RolledBack", says: says, places: "a"},
		{name: "bare-and-kept", town: alone, during: from("Verifying", false, kept), phase: "Succeeded", says: "in place of", places: "b", deaths: true, since: 15},
	} {
		j.ask = ask("Checkpoint")
		j.test(t)
	}
}

// The same holds if a user has deleted the action by force.
func TestASourceThatRunsAfterItsActionIsGone(t *testing.T) {
	t.Parallel()
	for what, disturbed := range map[string]func(*town){"resumed": (*town).disturb, "ended": (*town).end, "ended before its copy is ready": func(w *town) { w.end(); w.sicken(1) }} {
		w := newTown(t, 1)
		bare(w)
		w.able()
		source := w.pods()[0]
		w.asks(source.Name, by("Checkpoint"))
		p := w.start()
		p.until(v1alpha1.MigrationVerifying)
		p.live()
		torn := w.actions(t.Context())[0].Name
		w.tear()
		w.clock.Step(time.Hour) // before that it may only not be seen yet, and its age is the API server's
		_, err := p.queue.Loops()[1].Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: torn}})
		w.must(err)
		disturbed(w)
		w.budget()
		w.start().clear()
		w.lonely()
		if left := w.pods(); len(left) != 2 || len(p.leftovers()) != 1 {
			t.Errorf("%s, and may not be evicted: %s", what, w.everyone())
		}
		w.relent()
		w.start().clear()
		if left := w.pods(); len(p.leftovers()) > 0 || len(left) != 1 || left[0].UID == source.UID {
			t.Errorf("%s: %s", what, w.everyone())
		}
	}
}
