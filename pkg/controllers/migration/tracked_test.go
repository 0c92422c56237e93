package migration_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/migration"
)

// tracked tells whether a Job counts what becomes of a pod.
func tracked(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) }

// A Job of which one more pod may fail counts the evicted source, and not a replacement that cannot be restored as well: else it would
// fail.
func TestAStateThatCannotBeRestoredIsNoFailureOfItsJob(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*house){
		"cannot-be-made":  func(h *house) { h.broken, h.unready = true, true },
		"is-not-restored": func(h *house) { h.agents.cold = true },
	} {
		var h *house
		journey{name: name, town: func(w *town) {
			h = w.house("Job")
			h.counting()
			change(h)
		}, ask: ask("Checkpoint"), phase: "SucceededWithoutState", says: "its state could not come along", places: "b"}.tell(t, 0, false)
		if failed := h.job(nil).Status.Failed; failed != 1 {
			t.Errorf("%s: the Job counts %d failures", name, failed)
		}
	}
}

// Once the pod is known to go on with the state, or to have come to its end by it, the Job counts what becomes of it, once, although
// processes die over it. Up to then the Job is kept from creating another one.
func TestAPodThatGoesOnIsCountedByItsJob(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"goes-on": false, "ends-at-once": true} {
		phase, says := "Succeeded", "in place of"
		if ends {
			phase, says = "Failed", "nothing takes its place"
		}
		of := func(w *town) {
			h := w.house("Job")
			h.counting()
			h.succeeding()
		}
		during := func(w *town) func(int, *process) {
			times, was := 0, false
			w.agents.cold = ends
			return func(int, *process) {
				for _, p := range w.pods() {
					if !restored(&p) || p.Spec.NodeName == "" {
						continue
					}
					if is := tracked(&p); is && !was {
						times++
					}
					if was = tracked(&p); !ends || p.Status.Phase != corev1.PodRunning {
						continue
					}
					p.Status.Phase = corev1.PodSucceeded
					w.must(w.api.Status().Update(w.Context(), &p))
					if phase := w.move().Status.Phase; phase != v1alpha1.MigrationRestoring {
						w.Errorf("a pod may be made beside one that is not counted: it is %s", phase)
					}
				}
				if times > 1 {
					w.Errorf("it is counted %d times", times)
				}
			}
		}
		journey{name: name, town: of, ask: ask("Checkpoint"), during: during, phase: phase, says: says, deaths: true, since: 20, places: map[bool]string{false: "b"}[ends]}.test(t)
	}
}

// A Job counts a source that has ended while it was stopped, and removes its finalizer, before there is a replacement: the Job counts
// that all the same.
func TestAPodInThePlaceOfOneThatIsCountedIsCounted(t *testing.T) {
	t.Parallel()
	var h *house
	w := journey{town: func(w *town) {
		h = w.house("Job")
		h.counting()
	}, ask: ask("Checkpoint"), during: inStage("Transfer", each((*town).end, (*town).finish)), phase: "Succeeded", says: "in place of", places: "b", state: metav1.ConditionTrue}.tell(t, 0, false)
	if p := w.pods()[0]; !restored(&p) || !tracked(&p) || h.job(nil).Status.Failed != 1 {
		t.Errorf("pod %s of image %s has finalizers %v; %+v", p.Name, p.Spec.Containers[0].Image, p.Finalizers, h.job(nil).Status)
	}
}

// One that has come to its end by the state before its agent has said that it goes on with that is waited for: it has not lost it.
func TestAPodThatEndsBeforeItsAgentSaysThatItGoesOn(t *testing.T) {
	t.Parallel()
	journey{town: func(w *town) {
		h := w.house("Job")
		h.counting()
		h.succeeding()
		w.agents.cold = true
	}, ask: ask("Checkpoint"), during: func(w *town) func(int, *process) {
		ended := 0
		return func(int, *process) {
			for _, p := range w.pods() {
				switch {
				case !restored(&p):
				case p.Status.Phase == corev1.PodRunning:
					p.Status.Phase = corev1.PodSucceeded
					w.must(w.api.Status().Update(w.Context(), &p))
				case p.Status.Phase == corev1.PodSucceeded:
					if ended++; ended == 3 {
						w.says(&p)
					}
				}
			}
		}
	}, phase: "Succeeded", says: "in place of", places: "b", state: metav1.ConditionTrue}.tell(t, 0, false)
}

// says has the agent say that the runtime has restored a pod's container.
func (w *town) says(p *corev1.Pod) {
	w.Helper()
	list := &v1alpha1.NodeCheckpointList{}
	w.must(w.api.List(w.Context(), list))
	for i := range list.Items {
		list.Items[i].Status.Target.Archives[0].Restored = "c-" + p.Name
		w.must(w.api.Status().Update(w.Context(), &list.Items[i]))
	}
}

// succeeding has the Job's controller count its pods that have succeeded.
func (h *house) succeeding() {
	h.Helper()
	live := h.late
	h.late = func() {
		for _, p := range h.pods() {
			if p.Status.Phase == corev1.PodSucceeded && tracked(&p) {
				h.counts(&p)
			}
		}
		live()
	}
}

// counts has the Job count a pod that has succeeded, and be complete.
func (h *house) counts(p *corev1.Pod) {
	h.Helper()
	h.job(func(job *batchv1.Job) {
		now := metav1.Now()
		job.Status.Succeeded++
		job.Status.CompletionTime = &now
		for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
		}
	})
	h.none = true
	p.Finalizers = nil
	h.must(h.api.Update(h.Context(), p))
}

// A rule by which the Job fails holds for a pod that it does not count, too: one whose state cannot be restored.
func TestAJobThatFailsByAnExitCodeKeepsItsState(t *testing.T) {
	t.Parallel()
	w := journey{
		town: func(w *town) { w.house("strict Job") }, ask: ask("Checkpoint"), phase: "Refused", says: "would fail if its state could not be restored: rule 1", places: "a",
	}.tell(t, 0, false)
	if len(w.agents.stopped) > 0 || len(w.evicted) > 0 {
		t.Errorf("stopped %v, evicted %v", w.agents.stopped, w.evicted)
	}
}

// untracked is what Kubernetes' own Job controller does with the replacement of an evicted pod. Without its finalizer a failed one is
// not counted, and one that has succeeded by the time that the finalizer is added is.
func (c *cluster) untracked(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "untracked"}, Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](1), Template: template("untracked")}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	c.must(c.api.Create(t.Context(), job))
	own := c.runs("untracked", 1)[0]
	other := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: own.Labels, OwnerReferences: own.OwnerReferences}, Spec: job.Spec.Template.Spec}
	}
	ended := func(p *corev1.Pod, how corev1.PodPhase) {
		c.must(c.api.Create(t.Context(), p))
		c.soon(p.Name+" has ended", func() bool { // its kubelet writes, too
			c.must(c.api.Get(t.Context(), client.ObjectKeyFromObject(p), p))
			p.Status.Phase = how
			return c.api.Status().Update(t.Context(), p) == nil
		})
	}
	c.keptFrom(t, job, other("generated"))
	c.must(c.api.SubResource("eviction").Create(t.Context(), &own, &policyv1.Eviction{}))
	c.soon("the source is gone, and counted", func() bool {
		c.must(c.api.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		return job.Status.Failed == 1 && len(c.pods("untracked")) == 0
	})
	fails := other("fails")
	ended(fails, corev1.PodFailed)
	c.must(c.api.Delete(t.Context(), fails, client.GracePeriodSeconds(0)))
	replacement := other("succeeds")
	ended(replacement, corev1.PodSucceeded)
	c.soon("its finalizer is on", func() bool {
		c.must(c.api.Get(t.Context(), client.ObjectKeyFromObject(replacement), replacement))
		replacement.Finalizers = []string{batchv1.JobTrackingFinalizer}
		return c.api.Update(t.Context(), replacement) == nil
	})
	c.soon("the Job has ended", func() bool {
		c.must(c.api.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		return slices.ContainsFunc(job.Status.Conditions, func(o batchv1.JobCondition) bool { return o.Type == batchv1.JobComplete || o.Type == batchv1.JobFailed })
	})
	if job.Status.Failed != 1 || job.Status.Succeeded != 1 {
		t.Errorf("the Job's status: %+v", job.Status)
	}
}

// keptFrom keeps a Job's controller from creating pods, as the policy for replacements does.
func (c *cluster) keptFrom(t *testing.T, job *batchv1.Job, like *corev1.Pod) {
	policy, binding, err := charts.Heirs()
	c.must(err)
	policy.Spec.ParamKind, policy.Spec.Variables, binding.Spec.ParamRef = nil, nil, nil
	policy.Spec.Validations = []admissionv1.Validation{{Expression: "!object.metadata.?generateName.orValue('').startsWith('" + job.Name + "-')"}}
	c.must(c.api.Create(t.Context(), policy))
	c.must(c.api.Create(t.Context(), binding))
	like.Name, like.GenerateName = "", job.Name+"-"
	c.soon("a Job makes no pods", func() bool { return c.api.Create(t.Context(), like.DeepCopy(), client.DryRunAll) != nil })
}

// A policy that refuses that the Job's finalizer is added to the restored pod does not keep the migration from ending. The controller
// retries as long as there is time, in its action and, where that is over, in the hour after it.
func TestAFinalizerThatIsRefused(t *testing.T) {
	t.Parallel()
	for what, refusal := range map[string]error{
		"refused": apierrors.NewForbidden(corev1.Resource("pods"), "rt-1", errors.New("[allowed-repos] only of our registry")),
		"erring":  apierrors.NewInternalError(errors.New("failed calling webhook")),
	} {
		w := newTown(t, 1)
		w.gating = true
		h := w.house("Job")
		h.counting()
		w.client = interceptor.NewClient(w.client, interceptor.Funcs{Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if p, ok := o.(*corev1.Pod); ok && restored(p) && tracked(p) {
				return refusal
			}
			return api.Patch(ctx, o, patch, opts...)
		}})
		w.asks(w.first(), by("Checkpoint"))
		p := w.start()
		said := false
		for range 400 {
			if err := p.turn(); err != nil {
				p.live()
				p.clock.Step(time.Second)
			}
			_ = p.loop()
			a := w.actions(t.Context())
			if said = said || len(a) > 0 && strings.Contains(a[0].Status.Message+a[0].Status.LastError, refusal.Error()); len(a) > 0 && over(a) {
				p.clock.Step(time.Minute)
				p.settling()
			}
			if w.move().Status.Phase.Over() {
				break
			}
		}
		if o := w.move(); o.Status.Phase != v1alpha1.MigrationFailed || !strings.Contains(o.Status.Message, "goes on with its state") || !said || w.places() != "b" {
			t.Errorf("%s: said so %t; it is %s: %s; %s", what, said, o.Status.Phase, o.Status.Message, w.everyone())
		}
	}
}

// settling is leftovers that may go wrong, and are tried again.
func (p *process) settling() {
	p.Helper()
	list := &v1alpha1.NodeCheckpointList{}
	p.must(p.api.List(p.Context(), list))
	for i := range list.Items {
		l := &migration.Leftovers{Dependencies: p.dependencies()}
		_, _ = l.Reconcile(p.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
}
