package migration_test

import (
	"cmp"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// No pod is made for an owner that wants none any longer. A Job wants one though it may bear no further failure: the eviction was the last.
func TestAnOwnerIsAskedBeforeItsPodIsMade(t *testing.T) {
	var h *house
	of := func(kind string) func(*town) { return func(w *town) { h = w.house(kind) } }
	none := func(w *town) {
		h.none = true
		w.must(w.api.Patch(w.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "house"}},
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))))
	}
	lower := func(w *town) {
		h.none = true
		w.must(w.api.Patch(w.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "house"}},
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"ordinals":{"start":0}}}`))))
	}
	fewer := func(parallelism int32, completions *int32) func(*town) {
		return func(*town) {
			h.none = true
			h.job(func(job *batchv1.Job) {
				job.Spec.Parallelism, job.Spec.Completions = &parallelism, cmp.Or(completions, job.Spec.Completions)
			})
		}
	}
	last := func(failed bool) func(w *town) {
		return func(w *town) {
			job := &batchv1.Job{}
			w.must(w.api.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "house"}, job))
			job.Status.StartTime, job.Status.Failed = ptr.To(metav1.Now()), *job.Spec.BackoffLimit
			if h.none = failed; failed {
				for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
					job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
				}
			}
			w.must(w.api.Status().Update(w.Context(), job))
		}
	}
	complete := func(w *town) {
		job := &batchv1.Job{}
		w.must(w.api.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "house"}, job))
		job.Status.StartTime, job.Status.CompletedIndexes = ptr.To(metav1.Now()), "1"
		h.none = true
		w.must(w.api.Status().Update(w.Context(), job))
	}
	for _, j := range []journey{
		{name: "StatefulSet of none", town: of("StatefulSet"), during: onceEvicted(none), phase: "Failed", says: "nothing takes its place: StatefulSet house, which made it, wants no pods any longer"},
		{name: "StatefulSet of other numbers", town: of("StatefulSet"), during: onceEvicted(lower), phase: "Failed", says: "nothing takes its place: StatefulSet house, which made it, wants no pod of its number any longer"},
		{name: "Job of none", town: of("Job"), during: onceEvicted(fewer(0, nil)), phase: "Failed", says: "nothing takes its place: Job house, which made it, wants no pods any longer"},
		{name: "Job of fewer indexes", town: of("Indexed Job"), during: onceEvicted(fewer(1, ptr.To[int32](1))), phase: "Failed", says: "nothing takes its place: Job house, which made it, wants no pod of index 1 any longer"},
		{name: "Job at its last", town: of("Job"), during: onceEvicted(last(false)), phase: "Succeeded", says: "in place of", places: "b"},
		{name: "Job that has failed", town: of("Job"), during: onceEvicted(last(true)), phase: "Failed", says: "nothing takes its place: Job house, which made it, has failed"},
		{name: "Job whose index is complete", town: of("Indexed Job"), during: onceEvicted(complete), phase: "Failed", says: "nothing takes its place: index 1 of Job house, which made it, is complete"},
	} {
		made := false
		j.ask = func(w *town) {
			ask("Checkpoint")(w)
			live := w.late
			w.late = func() { made = made || w.copied() != nil; live() }
		}
		j.tell(t, 0, false)
		h.expectNothingLeft()
		if made != (j.phase == "Succeeded") {
			t.Errorf("%s: a pod was made in its place: %t", j.name, made)
		}
	}
}

// A StatefulSet that is scaled down has its controller delete the pod in the source's place, which finds no room: none is made again.
func TestAPodThatIsScaledAway(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	h := w.house("StatefulSet")
	scale := func(spec string) {
		w.must(w.api.Patch(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "house"}}, client.RawPatch("application/merge-patch+json", []byte(spec))))
	}
	h.none, w.crowded = true, map[string]bool{"b": true}
	scale(`{"spec":{"replicas":2,"ordinals":null}}`)
	w.asks(w.first(), by("Checkpoint"), func(o *v1alpha1.PodMigration) { o.Spec.Timeout.Duration = 20 * time.Minute })
	p := w.further(w.start(), func() bool { return w.copied() != nil })
	scale(`{"spec":{"replicas":1}}`)
	made, live := 1, w.late
	w.late = func() {
		if c := w.copied(); c != nil && c.DeletionTimestamp == nil {
			made++
			h.finishDeletion(c)
		}
		live()
	}
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if o := w.move(); made > 2 || o.Status.Phase != v1alpha1.MigrationFailed {
		t.Errorf("%d pods were made, and it is %s: %s", made, o.Status.Phase, o.Status.Message)
	}
	h.expectNothingLeft()
	w.rest(p)
}
