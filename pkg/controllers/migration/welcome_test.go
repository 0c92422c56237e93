package migration_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// restored tells whether a pod is to be made of archives.
func restored(p *corev1.Pod) bool {
	return strings.HasPrefix(p.Spec.Containers[0].Image, "mainspring.local/checkpoint/")
}

// onlyOurs is what those do who mind of which images there are pods, by who they are.
var onlyOurs = map[string]func(*corev1.Pod) error{
	"policy": func(p *corev1.Pod) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: "pods \"" + p.Name + "\" is forbidden: ValidatingAdmissionPolicy 'images' with binding 'images' denied request: only of our registry",
		}}
	},
	"gatekeeper": func(p *corev1.Pod) error {
		return apierrors.NewForbidden(corev1.Resource("pods"), p.Name, errors.New("[allowed-repos] only of our registry"))
	},
	"kyverno": func(*corev1.Pod) error {
		return apierrors.NewBadRequest("admission webhook \"validate.kyverno.svc-fail\" denied the request: only of our registry")
	},
	"pulls": func(p *corev1.Pod) error { p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways; return nil },
	"mirror": func(p *corev1.Pod) error {
		p.Spec.Containers[0].Image = "mirror.example/" + p.Spec.Containers[0].Image
		return nil
	},
}

// refusing are those of them who do not change pods.
var refusing = []string{"policy", "gatekeeper", "kyverno"}

// minded has them do so with pods that are made of archives.
func (w *town) minded(what string) {
	w.admission = func(p *corev1.Pod) error {
		if restored(p) {
			return onlyOurs[what](p)
		}
		return nil
	}
}

// If no pod may be created from archives, the source of a StatefulSet or a Job does not go. If that is so from the beginning it is not
// even stopped.
func TestAdmissionThatMindsImages(t *testing.T) {
	t.Parallel()
	words := map[string]string{"pulls": "imagePullPolicy Always: the API server's admission changes", "mirror": "of image mirror.example/"}
	for _, kind := range []string{"StatefulSet", "Job"} {
		for what := range onlyOurs {
			says := words[what]
			if says == "" {
				says = "only of our registry"
			}
			house := func(w *town) { w.Cleanup(w.house(kind).expectNothingLeft) }
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				stopped := false
				w := journey{town: func(w *town) { house(w); w.minded(what) }, ask: ask("Checkpoint"), phase: "RolledBack", says: says, places: "a", during: func(w *town) func(int, *process) {
					return func(int, *process) { stopped = stopped || len(w.agents.stopped) > 0 }
				}}.tell(t, 0, false)
				if stopped || len(w.evicted) > 0 {
					t.Errorf("%s: stopped: %t; %v evicted", kind, stopped, w.evicted)
				}
				w = journey{town: house, ask: ask("Checkpoint"), phase: "RolledBack", says: says, places: "a", during: onceStored(func(w *town) { w.minded(what) })}.tell(t, 0, false)
				if len(w.evicted) > 0 {
					t.Errorf("%s, on its way: %v evicted", kind, w.evicted)
				}
			})
		}
	}
}

// A copy is made while its source stands still, so that it goes on where that is refused, however.
func TestACopyThatAdmissionRefuses(t *testing.T) {
	t.Parallel()
	for _, what := range refusing {
		journey{town: func(w *town) { bare(w); w.able(); w.minded(what) }, ask: ask("Checkpoint"), phase: "RolledBack", says: "only of our registry", places: "a"}.tell(t, 0, false)
	}
}

// Once the source has gone, its state is abandoned where the API server refuses the pod, but not at once, as the refusal may be
// withdrawn. A ResourceQuota counts the source as long as that is there, and would refuse the owner's pod as well. The controller waits
// for it as long as there is time, and after that.
func TestAdmissionThatMindsImagesOnceTheSourceHasGone(t *testing.T) {
	t.Parallel()
	set := func(w *town) { w.Cleanup(w.house("StatefulSet").expectNothingLeft) }
	for _, what := range refusing {
		for name, turns := range map[string]int{what: 5, what + "-for-ever": 1000} {
			phase, says := "Succeeded", "in place of"
			if turns > 5 {
				phase, says = "SucceededWithoutState", "only of our registry"
			}
			journey{name: name, town: set, ask: ask("Checkpoint"), phase: phase, says: says, places: "b", during: onceEvicted(func(w *town) {
				left := turns
				w.admission = func(p *corev1.Pod) error {
					if left--; restored(p) && left > 0 {
						return onlyOurs[what](p)
					}
					return nil
				}
			})}.test(t)
		}
	}
	full := func(w *town) { set(w); w.quotas() }
	journey{name: "quota-that-counts-the-source", town: full, ask: ask("Checkpoint"), phase: "Succeeded", says: "in place of", places: "b"}.test(t)
}

// quotas has a ResourceQuota have room for one pod.
func (w *town) quotas() {
	w.admission = func(p *corev1.Pod) error {
		if restored(p) && len(w.pods()) > 0 {
			return apierrors.NewForbidden(corev1.Resource("pods"), p.Name, errors.New("exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"))
		}
		return nil
	}
}

// A pod for which a ResourceQuota has no room when the time is over, as another pod has taken it, is created with its state as soon as
// there is room.
func TestAQuotaThatAnotherPodHasTaken(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	h := w.house("StatefulSet")
	w.asks(w.first(), by("Checkpoint"))
	p := w.further(w.start(), func() bool { return w.move().Status.Phase == v1alpha1.MigrationCuttingOver })
	w.quota = 1000
	p = w.further(p, func() bool { return over(w.actions(t.Context())) })
	if o := w.move(); o.Status.Phase.Over() {
		t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
	}
	w.quota = 0
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if o := w.move(); !strings.Contains(o.Status.Message, "goes on with its state on node "+w.name("b")) || w.everyone() != "rt-1@b" {
		t.Errorf("it is %s: %s; %s", o.Status.Phase, o.Status.Message, w.everyone())
	}
	h.expectNothingLeft()
	w.rest(p)
}

// A webhook that changes the real pod, and did not see the dry run, as where a ResourceQuota has refused that before, has the state
// given up at once.
func TestAPodThatIsChangedWhenItIsMade(t *testing.T) {
	t.Parallel()
	w := journey{town: func(w *town) { w.Cleanup(w.house("StatefulSet").expectNothingLeft) }, ask: ask("Checkpoint"), during: func(w *town) func(int, *process) {
		w.admission = func(p *corev1.Pod) error {
			if !restored(p) {
				return nil
			}
			w.unready = true // as there is no such image
			_ = onlyOurs["mirror"](p)
			if len(w.pods()) > 0 {
				return apierrors.NewForbidden(corev1.Resource("pods"), p.Name, errors.New("exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"))
			}
			return nil
		}
		return nil
	}, phase: "SucceededWithoutState", says: "admission has changed image mainspring.local/checkpoint/", places: "b"}.tell(t, 0, false)
	if o := w.move(); o.Status.CompletionTime.Sub(o.Status.StartTime.Time) > 30*time.Second {
		t.Errorf("it took from %s to %s", o.Status.StartTime, o.Status.CompletionTime)
	}
}
