package migration_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// A policy (an admission webhook, a ValidatingAdmissionPolicy) that forbids the eviction ends the migration at once, in its words: the
// controller that requested it tries something else.
func TestAPolicyThatForbidsTheEvictionIsFollowed(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	asked := 0
	w.client = interceptor.NewClient(w.client, interceptor.Funcs{
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			asked++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "rt-1", errors.New("only on Sundays"))
		},
	})
	action := w.play(nil, w.request("rt-1"))[0]
	if action.Status.Phase != "RolledBack" || !strings.Contains(action.Status.Message, "only on Sundays") {
		t.Errorf("it is %s: %s", action.Status.Phase, action.Status.Message)
	}
	if asked != 1 || w.running() != "rt-1@a" {
		t.Errorf("asked %d times; it leaves %s", asked, w.running())
	}
	if !slices.ContainsFunc(w.heard(), func(e string) bool { return strings.HasPrefix(e, "MigrationWaits") }) {
		t.Errorf("told %q, and nobody of the policy", w.heard())
	}
}

// What is asked of the queue without a PodMigration is judged, too, as what it is for: denied, nothing is done and the record says why.
func TestPolicyJudgesWhatTheLadderAsksOfTheQueue(t *testing.T) {
	t.Parallel()
	for reason, trigger := range map[string]v1alpha1.MigrationTrigger{"RTPressure": v1alpha1.TriggerRTPressure, "ByHand": v1alpha1.TriggerManual} {
		for _, denies := range []string{"", "not on Sundays"} {
			w := newTown(t, 1)
			w.judge.denies = denies
			r := w.request("rt-1")
			r.Reason = reason
			action, record := w.play(nil, r)[0], w.moves()[0].Status
			want := map[bool]string{true: "Succeeded rt-2@b", false: "RolledBack rt-1@a"}[denies == ""]
			if got := string(action.Status.Phase) + " " + w.running(); got != want || !strings.Contains(action.Status.Message, denies) {
				t.Errorf("%s, denied %q: %s: %s", reason, denies, got, action.Status.Message)
			}
			if record.Decision == nil || record.Decision.Allowed != (denies == "") || record.Decision.Reason != denies {
				t.Errorf("%s, denied %q: the record has %+v", reason, denies, record.Decision)
			}
			if asked := w.judge.questions(); len(asked) != 1 || asked[0].Trigger != trigger || asked[0].Target == nil || asked[0].Target.Name != w.name("b") {
				t.Errorf("%s, denied %q: asked %+v", reason, denies, asked)
			}
		}
	}
}

// Nor does it go beyond the limits of the policy: it waits until another one is over.
func TestWhatTheLadderAsksOfTheQueueKeepsToLimits(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.judge.policy = &v1alpha1.MigrationPolicy{Spec: v1alpha1.MigrationPolicySpec{Limits: &v1alpha1.MigrationLimits{PerNamespace: ptr.To[int32](1)}}}
	other := w.asks("nobody")
	other.Status.Phase = v1alpha1.MigrationRestoring
	w.must(w.api.Status().Update(w.Context(), other))
	waited := false
	action := w.play(func(turn int, _ *process) {
		if list := w.actions(w.Context()); turn < 6 {
			waited = waited || strings.Contains(list[0].Status.Message, "limit perNamespace is reached")
			return
		}
		other.Status.Phase = v1alpha1.MigrationSucceeded
		w.must(client.IgnoreNotFound(w.api.Status().Update(w.Context(), other)))
	}, w.request("rt-1"))[0]
	if !waited || action.Status.Phase != "Succeeded" || len(w.judge.questions()) != 1 {
		t.Errorf("waited: %t; it is %s: %s; asked %d times", waited, action.Status.Phase, action.Status.Message, len(w.judge.questions()))
	}
}
