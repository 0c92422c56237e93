package migration_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// job is the Job of a house, changed.
func (h *house) job(change func(*batchv1.Job)) *batchv1.Job {
	h.Helper()
	job := &batchv1.Job{}
	h.must(h.api.Get(h.Context(), client.ObjectKey{Namespace: h.namespace, Name: "house"}, job))
	if change != nil {
		change(job)
		status := *job.Status.DeepCopy()
		h.must(h.api.Update(h.Context(), job))
		job.Status = status
		h.must(h.api.Status().Update(h.Context(), job))
	}
	return job
}

// counting has a Job own all pods of the town, of which one more may fail. Its controller counts those that end, some time after they
// do, and removes its finalizer then, as Kubernetes' own does.
func (h *house) counting() {
	h.Helper()
	h.job(func(job *batchv1.Job) { job.Spec.BackoffLimit = ptr.To[int32](1) })
	for _, p := range h.pods() {
		p.OwnerReferences, p.Finalizers = []metav1.OwnerReference{h.by}, []string{batchv1.JobTrackingFinalizer}
		h.must(h.api.Update(h.Context(), &p))
	}
	live, seen := h.late, map[string]int{}
	h.late = func() {
		for _, p := range h.pods() {
			if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed || !tracked(&p) {
				continue
			}
			if seen[string(p.UID)]++; seen[string(p.UID)] < 4 {
				continue
			}
			job := h.job(func(job *batchv1.Job) {
				job.Status.StartTime, job.Status.Failed = ptr.To(metav1.Now()), job.Status.Failed+1
			})
			p.Finalizers = nil
			h.must(h.api.Update(h.Context(), &p))
			if job.Status.Failed > *job.Spec.BackoffLimit {
				h.Errorf("the Job has failed by pod %s, with what its pods had in memory", p.Name)
			}
		}
		live()
	}
}

// If the Job tolerates no further failure by the time that the stopped source is to be evicted, or wants no pods any longer, the source
// runs on.
func TestAJobThatBearsNoMoreOnTheWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		says   string
	}{
		"failed-often": {func(job *batchv1.Job) {
			job.Status.StartTime, job.Status.Failed = ptr.To(metav1.Now()), *job.Spec.BackoffLimit
		}, "would count the pod as failed, and fail"},
		"suspended": {func(job *batchv1.Job) { job.Spec.Suspend = ptr.To(true) }, "wants no pods any longer"},
	} {
		var h *house
		w := journey{
			name: name, town: func(w *town) { h = w.house("Job") }, ask: ask("Checkpoint"),
			during: at("Transferring", func(*town) { h.job(c.change) }), phase: "RolledBack", says: c.says, places: "a",
		}.tell(t, 0, false)
		if len(w.evicted) > 0 {
			t.Errorf("%s: %v evicted", name, w.evicted)
		}
		h.expectNothingLeft()
	}
}

// Of two pods of a Job of which one may fail, one goes, although both are requested at once, as by a drain: the other waits, and is
// refused then.
func TestTwoPodsOfAJobThatBearsOneFailure(t *testing.T) {
	t.Parallel()
	w := newTown(t, 2)
	w.gating = true
	h := w.house("Job")
	h.counting()
	waited := false
	w.asks("rt-1", by("Checkpoint"))
	w.asks("rt-2", by("Checkpoint"))
	phases := map[v1alpha1.MigrationPhase]string{}
	for _, o := range w.migrate(func(int, *process) {
		for _, o := range w.moves() {
			waited = waited || o.Status.Phase == v1alpha1.MigrationPending && strings.Contains(o.Status.Message, "may count 1 more pods as failed, and does not show 1 others yet")
		}
	}) {
		phases[o.Status.Phase] = o.Status.Message
	}
	if !strings.Contains(phases["Refused"], "would count the pod as failed, and fail") || phases["Succeeded"] == "" || len(w.evicted) != 1 || !waited {
		t.Errorf("waited %t; %v; evicted %v", waited, phases, w.evicted)
	}
}

// The same holds for two actions without PodMigrations that begin at once. The one that comes later to the eviction waits for what the
// Job counts, and goes on where it was.
func TestTwoActionsForPodsOfAJobThatBearsOneFailure(t *testing.T) {
	t.Parallel()
	for _, by := range []mcv1.MigrationKind{mcv1.MigrationCheckpoint, mcv1.MigrationRestart} {
		w := newTown(t, 2)
		w.gating = true
		h := w.house("Job")
		h.counting()
		wants(by, v1alpha1.MigrationPolicySpec{})(w)
		p := w.start()
		for _, name := range []string{"rt-1", "rt-2"} {
			r := w.request(name)
			r.Cause += "/" + name
			p, _ = w.submit(p, r)
		}
		w.further(p, func() bool {
			list := w.actions(t.Context())
			return len(list) == 2 && over(list)
		})
		undone := 0
		for _, o := range w.actions(t.Context()) {
			if o.Status.Phase == "RolledBack" {
				undone++
			}
			t.Logf("%s: %s: %s: %s", by, o.Name, o.Status.Phase, o.Status.Message)
		}
		if len(w.evicted) != 1 || undone != 1 {
			t.Errorf("%s: evicted %v, undone %d: %s", by, w.evicted, undone, w.everyone())
		}
		for _, pod := range w.pods() {
			if pod.Status.Phase == corev1.PodRunning && pod.Spec.NodeName == w.name("a") && w.agents.stopped[pod.UID] {
				t.Errorf("%s: pod %s stands still", by, pod.Name)
			}
		}
	}
}

// A Job that counts the failures of each index keeps a failed pod of an index until there is another. None could take its place, so its
// state does not go along, which is known before anything is stopped.
func TestAJobThatKeepsItsFailedPods(t *testing.T) {
	t.Parallel()
	w := journey{town: func(w *town) { w.house("Job by index") }, ask: ask("Checkpoint"), phase: "Refused", says: "backoffLimitPerIndex", places: "a"}.tell(t, 0, false)
	if c := meta.FindStatusCondition(w.move().Status.Conditions, v1alpha1.ConditionMigrationAdmitted); c == nil || c.Reason != "StateImpossible" || len(w.agents.stopped) > 0 || len(w.evicted) > 0 {
		t.Errorf("condition %+v, stopped %v, evicted %v", c, w.agents.stopped, w.evicted)
	}
}

// A Job's pod that has come to its end before its agent has stopped it, which finds it gone, has lost nothing.
func TestAJobsPodThatIsDoneBeforeItIsStopped(t *testing.T) {
	t.Parallel()
	w := journey{
		town: func(w *town) { w.house("Job").agents.fails = v1alpha1.StageCheckpoint }, ask: ask("Checkpoint"),
		during: at("Checkpointing", func(w *town) {
			p := w.pods()[0]
			p.Status.Phase = corev1.PodSucceeded
			w.must(w.api.Status().Update(w.Context(), &p))
		}), phase: "RolledBack", says: "the pod has ended on node", places: "a", state: metav1.ConditionTrue,
	}.tell(t, 0, false)
	if o := w.move(); strings.Contains(o.Status.Message, "lost") {
		t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
	}
}
