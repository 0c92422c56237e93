package migration_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// away has the controller be away for so long from stage Restore on, before there is a copy, and the source end meanwhile.
func away(long time.Duration) func(*town) func(int, *process) {
	return func(w *town) func(int, *process) {
		done := false
		return func(_ int, p *process) {
			if done || w.move().Status.Phase != v1alpha1.MigrationTransferring {
				return
			}
			nc := &v1alpha1.NodeCheckpoint{}
			w.must(client.IgnoreNotFound(w.api.Get(w.Context(), client.ObjectKey{Name: w.actions(w.Context())[0].Name}, nc)))
			if nc.Status.Target == nil || nc.Status.Target.State != v1alpha1.CheckpointTransferred {
				return
			}
			done = true
			nc.Spec.Stage = v1alpha1.StageRestore
			w.must(w.api.Update(w.Context(), nc))
			w.clock.Step(long)
			w.end()
			p.look()
		}
	}
}

// inStage does something when the source's agent has written the state and the NodeCheckpoint is in a stage, while the target has
// nothing yet for four turns.
func inStage(stage v1alpha1.CheckpointStage, do func(*town)) func(*town) func(int, *process) {
	return func(w *town) func(int, *process) {
		turns := 0
		return func(_ int, p *process) {
			if turns > 0 {
				if turns++; turns == 5 {
					w.agents.stuck = false
				}
				return
			}
			list := &v1alpha1.NodeCheckpointList{}
			w.must(w.api.List(w.Context(), list))
			if len(list.Items) == 0 || list.Items[0].Spec.Stage != stage || list.Items[0].Status.Source == nil || list.Items[0].Status.Source.State != v1alpha1.CheckpointCheckpointed {
				return
			}
			turns++
			nc := &list.Items[0]
			nc.Status.Target = nil
			nc.Status.Source.Disturbance, nc.Status.Source.Message = v1alpha1.CheckpointEnded, ended
			w.must(w.api.Status().Update(w.Context(), nc))
			w.agents.stuck = true
			do(w)
			p.look()
		}
	}
}

// sways has the copy, which is ready, not be so.
func sways(w *town) { swaysAt(w, time.Time{}) }

// swaysAt does so, since a time that its kubelet tells.
func swaysAt(w *town, at time.Time) {
	for _, pod := range w.pods() {
		if pod.UID == w.move().Status.Source.PodUID {
			continue
		}
		for i := range pod.Status.Conditions {
			if pod.Status.Conditions[i].Type == corev1.PodReady {
				pod.Status.Conditions[i].Status = corev1.ConditionFalse
				if !at.IsZero() {
					pod.Status.Conditions[i].LastTransitionTime = metav1.NewTime(at)
				}
			}
		}
		w.must(w.api.Status().Update(w.Context(), &pod))
	}
}

// A source that has ended while it was stopped has no memory any longer: what was taken of it is the only state. If any pod can be
// restored from that, one is, although a user aborts the migration, no controller was running, or the source may not go for long. If
// none can, the status says what is lost, and that the pod starts anew.
func TestASourceThatHasEnded(t *testing.T) {
	t.Parallel()
	owned := func(w *town) { w.rollout(1); w.able() }
	alone := func(w *town) { bare(w); w.able() }
	set := func(w *town) {
		w.house("StatefulSet")
	}
	job := func(w *town) { w.house("Job").counting() }
	end, budget, relent := (*town).end, (*town).budget, (*town).relent
	broken := func(w *town) { w.end(); w.late = func() { w.fail("StartError") } }
	const lost = "what the pod had in memory is lost: "
	for _, j := range []journey{
		{name: "owned", town: owned, during: at("Verifying", end), phase: "Succeeded", says: "in place of", places: "b", state: "True", deaths: true, since: 15},
		{name: "bare", town: alone, during: at("Verifying", end), phase: "Succeeded", says: "in place of", places: "b", state: "True", evictions: 1},
		{name: "owned-early", town: owned, during: from("Verifying", true, map[int]func(*town){0: end, 5: (*town).rise}), phase: "Succeeded", says: "in place of", places: "b", state: "True"},
		{name: "bare-early", town: alone, during: from("Verifying", true, map[int]func(*town){0: end, 5: (*town).rise}), phase: "Succeeded", says: "in place of", places: "b", state: "True",
			deaths: true, since: 13},
		{name: "bare-and-a-hiccup", town: alone, during: at("Verifying", each(end, func(w *town) { w.hiccups = 1 })), phase: "Succeeded", places: "b", state: "True"},
		{name: "bare-and-kept", town: alone, during: from("Verifying", false, map[int]func(*town){0: each(end, budget), 25: relent}), phase: "Succeeded", places: "b", state: "True"},
		{name: "nobody-was-there", town: alone, during: away(40 * time.Second), phase: "Succeeded", places: "b", state: "True", deaths: true, since: 10},
		{name: "nobody-was-there-for-long", town: alone, during: away(70 * time.Second), phase: "Succeeded", places: "b", state: "True"},
		{name: "owned-and-nobody-was-there", town: probed(owned, 10), during: away(40 * time.Second), phase: "Succeeded", places: "b", state: "True"},
		{name: "aborted", town: alone, during: from("Verifying", true, map[int]func(*town){0: each(end, abort), 5: (*town).rise}), phase: "Succeeded", places: "b", state: "True"},
		{name: "aborted-on-the-way", town: alone, during: inStage("Transfer", each(end, abort)), phase: "Succeeded", places: "b", state: "True", deaths: true, since: 10},
		{name: "aborted-before-it-goes", town: alone, during: inStage("Checkpoint", each(end, abort)), phase: "Succeeded", places: "b", state: "True"},
		{name: "aborted-and-never-brought", town: alone, during: inStage("Transfer", each(end, abort, func(w *town) { w.agents.fails = v1alpha1.StageTransfer })), phase: "Failed", says: lost, places: "a", state: "False"},
		{name: "on-the-way", town: alone, during: at("Transferring", end), phase: "Succeeded", places: "b", state: "True"},
		{name: "target-cordoned", town: alone, during: at("Transferring", each(end, func(w *town) { w.cordon("b") })), phase: "Succeeded", places: "b", state: "True"},
		{name: "heir", town: set, during: onceStored(end), phase: "Succeeded", says: "in place of", places: "b", state: "True", deaths: true, since: 20},
		{name: "heir-kept", town: set, during: from("Transferring", false, map[int]func(*town){0: each(end, budget), 25: relent}), phase: "Succeeded", places: "b", state: "True"},
		{name: "heir-of-a-job", town: job, during: inStage("Transfer", each(end, (*town).finish)), phase: "Succeeded", says: "in place of", places: "b", state: "True"},
		{name: "heir-never-let-go", town: set, during: at("Transferring", each(end, budget)), phase: "Failed", says: "begins anew on node", places: "a", state: "False"},

		{name: "never-ready", town: alone, during: unready(at("Verifying", end)), phase: "Failed", says: "begins anew on node", places: "a", state: "False", deaths: true, since: 15},
		{name: "not-restored", town: alone, during: from("Verifying", true, map[int]func(*town){0: broken}), phase: "Failed", says: lost, places: "a", state: "False"},
		{name: "being-written", town: alone, during: at("Checkpointing", end), phase: "Failed", says: "begins anew on node", places: "a", state: "False"},
		{name: "not-brought", town: func(w *town) { alone(w); w.agents.fails = v1alpha1.StageTransfer }, during: at("Transferring", end), phase: "Failed", says: lost, places: "a", state: "False"},
		{name: "pod-gone", town: alone, during: at("Transferring", deleted), phase: "Failed", says: "nobody here has evicted it", places: "", state: "False"},
		{name: "copy-gone", town: alone, during: at("CuttingOver", func(w *town) { w.takeCopies() }), phase: "Failed", says: "was taken away", places: "a", state: "False"},

		{name: "finished", town: alone, during: from("Verifying", true, map[int]func(*town){0: each((*town).finish, end), 4: (*town).rise}), phase: "Succeeded", places: "b", state: "True"},
		{name: "finishing", town: alone, during: from("Verifying", true, map[int]func(*town){0: end, 1: (*town).finish, 4: (*town).rise}), phase: "Succeeded", places: "b", state: "True"},
		{name: "finished-and-never-ready", town: alone, during: unready(at("Verifying", each(end, (*town).finish))), phase: "Failed", says: "it has ended on node", places: "a", state: "False"},
	} {
		j.ask = ask("Checkpoint")
		j.test(t)
	}
}

// takeCopies deletes the copy, as a user may.
func (w *town) takeCopies() {
	w.Helper()
	for _, pod := range w.pods() {
		if pod.UID != w.move().Status.Source.PodUID {
			w.finishDeletion(&pod)
		}
	}
}

// A copy that has served, and is not ready for a while, stays: a client may have had an answer of it. It also stays where its proof
// takes longer than the time for becoming ready.
func TestACopyThatHasServedAndIsNotReady(t *testing.T) {
	t.Parallel()
	alone := func(w *town) { bare(w); w.able() }
	patient := func(w *town) {
		w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 10 * time.Minute })
	}
	for _, j := range []journey{
		{name: "aborted", town: func(w *town) { alone(w); w.agents.lax = true }, ask: ask("Checkpoint"),
			during: from("Verifying", false, map[int]func(*town){6: each(sways, abort)}), phase: "Failed", says: "the pod goes on with its state", places: "b", state: "True"},
		{name: "late", town: func(w *town) { alone(w); w.agents.lax = true }, ask: patient,
			during: from("Verifying", false, map[int]func(*town){
				40: sways, 50: func(w *town) { w.agents.lax = false; w.steady() },
			}), phase: "Succeeded", says: "in place of", places: "b", state: "True"},
		{name: "ended", town: func(w *town) { alone(w); w.agents.lax = true }, ask: ask("Checkpoint"),
			during: from("Verifying", false, map[int]func(*town){6: each(sways, stops, abort)}), phase: "Aborted", says: "stays on node", places: "a"},
	} {
		j.test(t)
	}
}

// steady has the copy be ready again.
func (w *town) steady() {
	w.Helper()
	for _, pod := range w.pods() {
		if pod.UID != w.move().Status.Source.PodUID {
			pod.Status.ResourceClaimStatuses = nil // which it says anew
			w.run(&pod)
		}
	}
}

// stops has the copy's container end.
func stops(w *town) {
	for _, pod := range w.pods() {
		if pod.UID != w.move().Status.Source.PodUID {
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
			w.must(w.api.Status().Update(w.Context(), &pod))
		}
	}
}

// A copy also stays that has served while no controller was running, and is not ready when one is back: the time since when it is not
// ready tells that it was. A copy that never was is deleted.
func TestACopyThatHasServedUnseen(t *testing.T) {
	t.Parallel()
	for _, served := range []bool{true, false} {
		w := newTown(t, 1)
		bare(w)
		w.able()
		w.unready = true
		w.asks(w.first(), by("Checkpoint"))
		w.start().until(v1alpha1.MigrationVerifying)
		w.clock.Step(5 * time.Second)
		w.rise()
		w.checkpoints()
		if served {
			w.clock.Step(10 * time.Minute)
		}
		swaysAt(w, w.clock.Now())
		if !served {
			w.clock.Step(10 * time.Minute)
		}
		p := w.start()
		p.further(30, func() {})
		if o, want := w.move(), map[bool]string{true: "b", false: "a"}[served]; w.places() != want {
			t.Errorf("served %t: it is %s: %s; %s", served, o.Status.Phase, o.Status.Message, w.everyone())
		}
	}
}
