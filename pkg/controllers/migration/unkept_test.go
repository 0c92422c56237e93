package migration_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// unguard lets owners create pods, until guard is called again. If the policy or its binding were deleted, this API server would never
// look at PodTemplates again (kubernetes/kubernetes#130887).
func (w *town) unguard() {
	w.Helper()
	w.enforce(admissionv1.Audit)
	guarded = sync.Once{}
}

// enforce has the API server do so where the policy says no, and waits until it does.
func (w *town) enforce(what admissionv1.ValidationAction) {
	w.Helper()
	_, binding, err := charts.Heirs()
	w.must(err)
	kept, by := w.keeping("StatefulSet", "probe", "")
	if what != admissionv1.Deny {
		w.becomes(by, true) // so that it is known of when it is kept no longer
	}
	w.must(w.api.Get(w.Context(), client.ObjectKeyFromObject(binding), binding))
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{what}
	w.must(w.api.Update(w.Context(), binding))
	w.becomes(by, what == admissionv1.Deny)
	w.must(w.api.Delete(w.Context(), kept))
}

// If nothing keeps the owner from recreating the pod, nothing is stopped. If that becomes so by the time of the source's eviction, the
// source runs on.
func TestAnOwnerThatIsNotKept(t *testing.T) {
	for _, late := range []bool{false, true} {
		stopped := false
		w := journey{
			town: func(w *town) {
				w.Cleanup(w.house("StatefulSet").expectNothingLeft)
				if !late {
					w.unguard()
				}
			},
			ask: ask("Checkpoint"),
			during: func(w *town) func(int, *process) {
				if late {
					return onceStored((*town).unguard)(w)
				}
				return func(int, *process) { stopped = stopped || len(w.agents.stopped) > 0 }
			},
			phase: "RolledBack", says: "nothing keeps StatefulSet house from making the pod anew", places: "a",
		}.tell(t, 0, false)
		if stopped || len(w.evicted) > 0 {
			t.Errorf("late %t: the pod was stopped: %t; evicted %v", late, stopped, w.evicted)
		}
	}
}

// An API server that has just begun does not keep it yet: it is asked again for a while, and the pod is moved with its state.
func TestAnOwnerThatIsKeptSomeTimeLater(t *testing.T) {
	w := newTown(t, 1)
	w.gating = true
	h := w.house("StatefulSet")
	w.unguard()
	w.asks(w.first(), by("Checkpoint"))
	began := w.clock.Now()
	p := w.further(w.start(), func() bool { return w.move().Status.Phase.Over() || w.clock.Now().Sub(began) > 31*time.Second })
	if o := w.move(); o.Status.Phase.Over() || len(w.agents.stopped) > 0 {
		t.Errorf("it is %s: %s; stopped %v", o.Status.Phase, o.Status.Message, w.agents.stopped)
	}
	w.guard()
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if o := w.move(); o.Status.Phase != v1alpha1.MigrationSucceeded {
		t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
	}
	h.expectNothingLeft()
}

// What keeps the owner goes where an action is deleted by force before there is anything that brings a controller back to it.
func TestAnOwnerOfAnActionThatIsGone(t *testing.T) {
	w := newTown(t, 1)
	w.gating = true
	h := w.house("Job")
	w.unguard()
	w.asks(w.first(), by("Checkpoint"))
	p := w.further(w.start(), func() bool { return w.restrained() })
	w.tear()
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if w.move().Status.Phase != v1alpha1.MigrationFailed {
		t.Errorf("it is %s: %s", w.move().Status.Phase, w.move().Status.Message)
	}
	h.expectNothingLeft()
	w.guard()
}

// So it may where the pod is no longer its when the migration ends.
func TestAnOwnerThatHasReleasedItsPod(t *testing.T) {
	for name, ends := range map[string]func(*town){"aborted": abort, "goes on": func(*town) {}} {
		w := newTown(t, 1)
		w.gating = true
		h := w.house("Job")
		h.none = true
		w.asks(w.first(), by("Checkpoint"))
		p := w.further(w.start(), func() bool { return w.move().Status.Phase == v1alpha1.MigrationTransferring })
		released := w.pods()[0]
		released.OwnerReferences = nil
		w.must(w.api.Update(t.Context(), &released))
		ends(w)
		w.further(p, func() bool { return w.move().Status.Phase.Over() })
		if w.restrained() {
			t.Errorf("%s: it is %s, and the owner is still kept from making pods", name, w.move().Status.Phase)
		}
		h.expectNothingLeft()
	}
}

// restrained tells whether an owner of the town is kept from making pods.
func (w *town) restrained() bool {
	w.Helper()
	list := &corev1.PodTemplateList{}
	w.must(w.api.List(w.Context(), list, client.InNamespace(w.namespace), client.MatchingLabels{"mckube.io/keeps-owner": "true"}))
	return len(list.Items) > 0
}

// Other pods of the Job: those of other indexes of an Indexed Job are created all the while. Those of other Jobs are created from when
// the replacement is restored, which has still to prove itself then.
func TestOtherPodsOfAJob(t *testing.T) {
	for _, kind := range []string{"Indexed Job", "Job"} {
		w := newTown(t, 1)
		w.gating = true
		h := w.house(kind)
		h.agents.ordinary = true // it does not prove itself
		other := h.pod.DeepCopy()
		other.GenerateName = "house-"
		if kind == "Indexed Job" {
			other.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: "0"}
		}
		kept := map[v1alpha1.MigrationPhase]bool{}
		w.asks(w.first(), by("Checkpoint"))
		w.further(w.start(), func() bool {
			if phase := w.move().Status.Phase; w.restrained() || phase == v1alpha1.MigrationVerifying {
				kept[phase] = w.api.Create(t.Context(), other.DeepCopy(), client.DryRunAll) != nil
			}
			return w.move().Status.Phase == v1alpha1.MigrationVerifying
		})
		if kept[v1alpha1.MigrationTransferring] != (kind == "Job") || kept[v1alpha1.MigrationVerifying] {
			t.Errorf("%s: %v", kind, kept)
		}
	}
}

// Where its user deletes a pod whose state is on its way, its owner makes it anew at once, and does not wait for agents that do not answer.
func TestAnOwnerOfAPodThatItsUserDeletes(t *testing.T) {
	w := newTown(t, 1)
	w.gating = true
	h := w.house("StatefulSet")
	w.asks(w.first(), by("Checkpoint"))
	p := w.further(w.start(), func() bool { return w.move().Status.Phase == v1alpha1.MigrationTransferring })
	source := w.move().Status.Source.PodUID
	w.agents.gone = true
	w.deletePod()
	p = w.further(p, func() bool { return slices.ContainsFunc(w.pods(), func(p corev1.Pod) bool { return p.UID != source }) })
	if o := w.move(); o.Status.Phase != v1alpha1.MigrationRollingBack {
		t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
	}
	w.agents.gone = false
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	h.expectNothingLeft()
}
