package migration_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// noticed is for how many turns two may run that have one state, until that is seen and one of them is taken away, whoever dies over it.
const noticed = 6

// stirs has the source's agent say, as it does from stage Restore on, that a container did not stay paused, or is gone.
func (w *town) stirs(nc *v1alpha1.NodeCheckpoint) {
	if nc.Spec.Stage == v1alpha1.StageRestore && (w.agents.awake || !w.there(nc)) {
		nc.Status.Source.Message = "container app: somebody else resumed, ended or started anew a container that was to stay paused"
	}
}

// disturb has the source run again, as its liveness probe began it anew, and its agent see that.
func (w *town) disturb() {
	w.Helper()
	w.agents.awake = true
	w.agents.stopped[w.move().Status.Source.PodUID] = false
	w.checkpoints()
}

// finishes has the source come to its end while its copy is not ready, which that is some turns later.
func finishes(w *town) func(int, *process) {
	w.unready = true
	since := 0
	return func(_ int, p *process) {
		if w.move().Status.Phase != v1alpha1.MigrationVerifying {
			return
		}
		since++
		for _, pod := range w.pods() {
			switch copied := pod.UID != w.move().Status.Source.PodUID; {
			case since == 1 && !copied:
				pod.Status.Phase = corev1.PodFailed
				w.must(w.api.Status().Update(w.Context(), &pod))
			case since == 4 && copied:
				w.unready = false
				w.run(&pod)
			}
		}
		if since == 1 {
			w.disturb()
			p.look()
		}
	}
}

// A source that runs again beside its copy is seen, and of the two one stays: the source where the copy does not serve yet, or where it may not be evicted;
// else the copy, as its state is nowhere else.
func TestASourceThatDoesNotStandStill(t *testing.T) {
	t.Parallel()
	owned := func(w *town) { w.rollout(1); w.able() }
	alone := func(w *town) { bare(w); w.able() }
	kept := func(w *town) { w.disturb(); w.budget() }
	const says = "the source does not stand still any longer: node "
	for _, j := range []journey{
		{name: "owned", town: owned, during: at("Verifying", (*town).disturb), phase: "Succeeded", says: "in place of", places: "b", deaths: true, since: 15},
		{name: "owned-early", town: owned, during: unready(at("Verifying", (*town).disturb)), phase: "RolledBack", says: says, places: "a", deaths: true, since: 13},
		{name: "owned-and-kept", town: owned, during: at("Verifying", kept), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "bare", town: alone, during: at("Verifying", (*town).disturb), phase: "Succeeded", says: "in place of", places: "b", deaths: true, since: 15, evictions: 1},
		{name: "bare-early", town: alone, during: unready(at("Verifying", (*town).disturb)), phase: "RolledBack", says: says, places: "a"},
		{name: "bare-and-kept", town: alone, during: at("Verifying", kept), phase: "RolledBack", says: "its copy, which served, was taken away", places: "a", deaths: true, since: 15},
		{name: "finished", town: alone, during: finishes, phase: "Succeeded", says: "in place of", places: "b"},
	} {
		j.ask = ask("Checkpoint")
		j.test(t)
	}
}

// The same goes for one whose action somebody has deleted by force.
func TestASourceThatDoesNotStandStillAndNobodyIsAtIt(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		w := newTown(t, 1)
		bare(w)
		w.able()
		source := w.pods()[0]
		w.asks(source.Name, by("Checkpoint"))
		p := w.start()
		p.until(v1alpha1.MigrationVerifying)
		torn := w.actions(t.Context())[0].Name
		w.tear()
		w.clock.Step(time.Hour) // before that it may only not be seen yet, and its age is the API server's
		_, err := p.queue.Loops()[1].Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: torn}})
		w.must(err)
		w.disturb()
		if kept {
			w.budget()
		}
		w.start().clear()
		left := w.pods()
		stays := slices.ContainsFunc(left, func(p corev1.Pod) bool { return p.UID == source.UID })
		if list := p.leftovers(); len(list) > 0 || len(left) != 1 || stays != kept {
			t.Errorf("may be evicted: %t: %d NodeCheckpoints are left; %s", !kept, len(list), w.everyone())
		}
	}
}
