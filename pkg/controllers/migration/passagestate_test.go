package migration_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// The state of a source that does not end is kept also where an action was there first, and is gone.
func TestAStateIsKeptWhoseActionIsGone(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.gating = true
	h := w.house("StatefulSet")
	wants(mcv1.MigrationCheckpoint, v1alpha1.MigrationPolicySpec{})(w)
	r := w.request(w.first())
	r.Timeout = time.Minute
	p, _ := w.submit(w.start(), r)
	p = w.further(p, func() bool { return len(w.moves()) > 0 && w.move().Status.Phase == v1alpha1.MigrationTransferring })
	w.detain("rt-1", true)
	h.absent = true // the owner makes no pod of a name that is there
	w.further(p, func() bool { return over(w.actions(t.Context())) })
	w.tear()
	p = w.start()
	for range 3 {
		w.must(p.turn())
		w.must(p.loop())
		p.leftovers()
	}
	if o := w.move(); o.Status.Phase.Over() || !strings.Contains(o.Status.Message, "its state is kept on node") {
		t.Errorf("it is %s: %s", o.Status.Phase, o.Status.Message)
	}
	w.detain("rt-1", false)
	h.absent = false
	w.further(p, func() bool { return w.move().Status.Phase.Over() })
	if got := w.pods(); len(got) != 1 || !strings.HasPrefix(got[0].Spec.Containers[0].Image, "mainspring.local/checkpoint/") {
		t.Errorf("it is %s: %s; %s", w.move().Status.Phase, w.move().Status.Message, w.everyone())
	}
}

// What was said of the state is no longer said when it need not come along any more.
func TestAStateThatIsNotWantedAnyLonger(t *testing.T) {
	t.Parallel()
	for name, able := range map[string]bool{"it could have come along": true, "it could not": false} {
		w := newTown(t, 1)
		w.rollout(1)
		if able {
			w.able()
		}
		wants(mcv1.MigrationCheckpoint, v1alpha1.MigrationPolicySpec{})(w)
		one := int32(1)
		w.judge.policy.Spec.Limits = &v1alpha1.MigrationLimits{PerNamespace: &one}
		other := w.asks("nobody")
		other.Status.Phase = v1alpha1.MigrationRestoring
		w.must(w.api.Status().Update(w.Context(), other))
		said := false
		action := w.play(func(turn int, _ *process) {
			if turn == 6 {
				for _, o := range w.moves() {
					said = said || meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState) != nil
				}
				wants(mcv1.MigrationRestart, v1alpha1.MigrationPolicySpec{})(w)
			}
		}, w.request(w.first()))[0]
		if !said || action.Status.Phase != "Succeeded" || len(w.evicted) != 1 {
			t.Errorf("%s: the action is %s: %s; evicted %v, said before %v", name, action.Status.Phase, action.Status.Message, w.evicted, said)
		}
		for _, o := range w.moves() {
			if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionMigrationState); c != nil {
				t.Errorf("%s: it is %s, and says %+v", name, o.Status.Phase, *c)
			}
		}
	}
}
