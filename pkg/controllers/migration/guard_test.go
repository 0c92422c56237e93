package migration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/charts"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// keptBack is what an API server says where the policy for replacements refuses a pod, as a release of any name has it.
func keptBack(pod *corev1.Pod) error {
	policy, _, err := charts.Heirs()
	if err != nil {
		return err
	}
	words := strings.Split(policy.Spec.Validations[0].MessageExpression, "'") // of those in quotes the last

	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("pods %q is forbidden: ValidatingAdmissionPolicy 'acme-mainspring-heirs' with binding 'acme-mainspring-heirs' denied request: PodMigration other moves pod rt-9%s", pod.Name, words[len(words)-2]),
	}}
}

// Two pods of one Job are moved with their states side by side, as by a drain: each goes on with its own, and the Job makes none meanwhile.
func TestTwoPodsOfOneJob(t *testing.T) {
	t.Parallel()
	for _, later := range []int{0, 3, 6} {
		w := newTown(t, 2)
		w.gating = true
		h := w.house("Job")
		for _, p := range w.pods() {
			p.OwnerReferences = []metav1.OwnerReference{h.by}
			w.must(w.api.Update(t.Context(), &p))
		}
		w.asks("rt-1", by("Checkpoint"))
		for i, o := range w.migrate(func(turn int, p *process) {
			if turn == later {
				w.asks("rt-2", by("Checkpoint"))
				p.look()
			}
		}) {
			if o.Status.Phase != v1alpha1.MigrationSucceeded || !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionMigrationState) {
				t.Errorf("%d turns later: %d is %s: %s", later, i, o.Status.Phase, o.Status.Message)
			}
		}
		if w.everyone() != "rt-1@b rt-2@b" {
			t.Errorf("%d turns later: %s", later, w.everyone())
		}
		h.expectNothingLeft()
	}
}

// While a pod's state is on its way the API server accepts its replacement, and the replacements of other pods of the Job, unless the
// Job controller creates them. A probe for one migration is answered for that one.
func TestWhatThePolicyForReplacementsLetsPass(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.guard()
	for kind, passes := range map[string]map[string]bool{
		"Job":         {"": false, "u1": true, "u2": true, "asks/u1": false, "asks/u2": true, "u1 generated": true, "u2 generated": false, "generated": false},
		"Indexed Job": {"index-3": false, "index-3 generated": false, "index-2 generated": true, "index-3 u1": true, "index-3 asks/u1": false, "index-2 asks/u2": true},
		"StatefulSet": {"": false, "u1": true, "u2": false, "asks/u1": false, "asks/u2": false, "u2 elsewhere": true, "elsewhere": true},
	} {
		index, first := "", ""
		if kind == "Indexed Job" {
			index, first = "3", "index-3"
		}
		kept, by := w.keeping(strings.TrimPrefix(kind, "Indexed "), types.UID(strings.ToLower(strings.ReplaceAll(kind, " ", "-"))), index)
		for deadline := time.Now().Add(time.Minute); w.tries(by, first) == nil && time.Now().Before(deadline); { // it learns of them in its own time
		}
		for says, want := range passes {
			if err := w.tries(by, says); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "PodMigration any moves pod rt-9") {
				t.Errorf("%s, %q: %v", kind, says, err)
			}
		}
		w.must(w.api.Delete(t.Context(), kept))
	}
}

// tries probes whether a pod of an owner may be created: which pod it replaces, which index it has, and whether its name is generated,
// or another one.
func (w *town) tries(by metav1.OwnerReference, says string) error {
	w.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "rt-9", OwnerReferences: []metav1.OwnerReference{by}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}},
	}
	for _, word := range strings.Fields(says) {
		index, indexed := strings.CutPrefix(word, "index-")
		switch {
		case word == "generated":
			p.Name, p.GenerateName = "", "house-"
		case word == "elsewhere":
			p.Name = "rt-8"
		case indexed:
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, batchv1.JobCompletionIndexAnnotation, index)
		default:
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, mcv1.AnnotationReplaces, word)
		}
	}
	return w.api.Create(w.Context(), p, client.DryRunAll)
}

// A refusal by Mainspring's own policy is not final, as it may be for another migration that ends: neither while the action goes on, nor
// afterwards.
func TestAReplacementThatThePolicyRefusesForAWhile(t *testing.T) {
	t.Parallel()
	journey{
		town: func(w *town) { w.Cleanup(w.house("StatefulSet").expectNothingLeft) }, ask: ask("Checkpoint"), during: onceEvicted(func(w *town) { w.kept = 40 }),
		phase: "Succeeded", says: "in place of", places: "b",
	}.test(t)
	for what, evicted := range map[string]func(*testing.T) (*town, *house, *process){"up to the end of its time": refused, "after it": dying} {
		w, h, p := evicted(t)
		w.kept = 4
		if h.absent {
			w.detain("rt-1", false)
		}
		h.absent = false
		w.further(p, func() bool { return w.move().Status.Phase.Over() })
		o := w.move()
		if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState); c.Status != metav1.ConditionTrue || w.kept > 0 || w.everyone() != "rt-1@b" {
			t.Errorf("%s: it is %s: %s; %+v; %s", what, o.Status.Phase, o.Status.Message, c, w.everyone())
		}
		h.expectNothingLeft()
		w.rest(p)
	}
}

// refused is a StatefulSet whose pod was evicted, and whose action is over before the pod in its place may be made.
func refused(t *testing.T) (w *town, h *house, p *process) {
	t.Helper()
	w = newTown(t, 1)
	w.gating = true
	h = w.house("StatefulSet")
	w.asks(w.first(), by("Checkpoint"))
	p = w.further(w.start(), func() bool { return w.move().Status.Phase == v1alpha1.MigrationTransferring })
	w.kept = 1000
	return w, h, w.further(p, func() bool { return over(w.actions(t.Context())) })
}
