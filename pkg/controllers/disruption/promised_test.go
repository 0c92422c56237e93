package disruption_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

// drift has the NodeClaim of a node be out of date.
func (w *world) drift(name string) {
	w.Helper()
	claim := &karpv1.NodeClaim{}
	w.must(w.client.Get(w.ctx, types.NamespacedName{Name: name}, claim))
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeDrifted)
	w.must(w.client.Status().Update(w.ctx, claim))
	w.sync()
}

// drifting is a NodePool that lets one of three drifted nodes go at a time. The first is going, and the action waits for just that.
func drifting(t *testing.T) (*world, *v1alpha1.RTAction) {
	t.Helper()
	w := begin(t, statetest.Cores(1)...)
	w.pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}}
	w.must(w.client.Update(w.ctx, w.pool))
	for _, name := range []string{"a", "b", "c"} {
		w.node(name, "edge", statetest.Cores(1)...)
		w.pod("pod-"+name, name, 20)
	}
	w.drift("a")
	w.pass()
	w.expectClosing("a")
	w.drift("b")
	w.drift("c")
	action := w.waits("ReplaceNode", "RTPressure", "a")
	action.Spec.NodePool, action.Spec.Since = w.pool.Name, &metav1.MicroTime{Time: w.clock.Now()}
	return w, action
}

func (w *world) expectClosing(want ...string) {
	w.Helper()
	got := w.disrupted()
	if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
		w.Errorf("%v are being closed, want %v; %q", got, want, w.messages())
	}
}

// Where the budget is one node, drift that gives way leaves the place to the action, in the pass in which it does and while the action waits for it,
// but not for ever.
func TestThePlaceInTheBudgetIsKeptForTheReplacement(t *testing.T) {
	w, action := drifting(t)
	w.loop.Follow(action)
	w.pass()
	w.expectClosing()
	if !w.said("ActionInFlight: action waits-1 waits for a place in the disruption budgets of NodePool general") {
		t.Errorf("it is not told: %q", w.messages())
	}
	action.Status.WaitingFor = "NodePoolBudget"
	for i, phase := range []v1alpha1.ActionPhase{"Waiting", "Expired", "Waiting", "Expired"} { // it rests in between
		action.Status.Phase = phase
		w.clock.Step(15*time.Minute - time.Second/4)
		if w.pass(); len(w.disrupted()) > 0 {
			t.Errorf("%d quarters of an hour after it was asked for %v are being closed", i+1, w.disrupted())
		}
	}
	w.clock.Step(time.Second)
	w.pass()
	if got := w.disrupted(); len(got) != 1 {
		t.Errorf("an hour after it was asked for %v are being closed, want one", got)
	}
}

// The place is kept from no method for another NodePool, another reason or another kind of action. Nor is it kept where the
// NodePool has no place for it at any time.
func TestNoPlaceIsKeptForAnythingElse(t *testing.T) {
	for name, change := range map[string]func(*world, *v1alpha1.RTActionSpec){
		"another NodePool": func(_ *world, s *v1alpha1.RTActionSpec) { s.NodePool = "other" },
		"another reason":   func(_ *world, s *v1alpha1.RTActionSpec) { s.Reason = "Recovery" },
		"another kind":     func(_ *world, s *v1alpha1.RTActionSpec) { s.Kind = "Preempt" },
		"no place": func(w *world, _ *v1alpha1.RTActionSpec) {
			w.pool.Spec.Disruption.Budgets = append(w.pool.Spec.Disruption.Budgets, karpv1.Budget{Nodes: "0", Reasons: []karpv1.DisruptionReason{"RTPressure"}})
			w.must(w.client.Update(w.ctx, w.pool))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, action := drifting(t)
			w.loop.Follow(action)
			w.pass()
			w.expectClosing()
			action.Status.WaitingFor = "NodePoolBudget"
			change(w, &action.Spec)
			w.pass()
			if got := w.disrupted(); len(got) != 1 || got[0] == "a" {
				t.Errorf("%v are being closed, want b or c", got)
			}
		})
	}
}
