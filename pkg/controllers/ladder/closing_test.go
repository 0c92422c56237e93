package ladder_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// A pod that must not be evicted may keep a node in deletion forever. The controller does nothing more for the node. Its
// pressure ends when no container is affected any longer: neither condition nor taint is left.
func TestPressureOfDeletedNodeEnds(t *testing.T) {
	s := simple(t)
	for _, kind := range rules.Kinds {
		s.conduct[kind] = rules.Result{Undo: true, Message: "no"}
	}
	p := s.spawn()
	s.turns(p, 6)
	defer s.closes("a")()
	asked := len(s.actions())
	expectLines(t, "while it suffers", s.turns(p, 40), "OverrunsAtHighBudget+taint")
	if list := s.actions(); len(list) != asked {
		t.Errorf("it is still climbed for: %q, of them %d since it is being closed", list, len(list)-asked)
	}
	s.overrun = func(string, int64) int64 { return 0 }
	expectLines(t, "after that", s.turns(p, 20), "OverrunsAtHighBudget+taint", "Eased+taint", "Recovering+taint", "Lifting+taint", "Lifting", "Ended")
	s.overrun = func(string, int64) int64 { return 5 }
	expectLines(t, "late again", s.turns(p, 5), "Ended")
}

// closes deletes a node, which its finalizer keeps until the test calls the returned function.
func (s *stage) closes(name string) (gone func()) {
	s.Helper()
	key, n := client.ObjectKey{Name: s.namespace + "-" + name}, &corev1.Node{}
	s.must(s.api.Get(s.Context(), key, n))
	n.Finalizers = []string{"karpenter.sh/termination"}
	s.must(s.api.Update(s.Context(), n))
	s.must(s.api.Delete(s.Context(), n))
	return func() {
		s.must(s.api.Get(s.Context(), key, n))
		n.Finalizers = nil
		s.must(s.api.Update(s.Context(), n))
	}
}

// The controller looks at a lasting pressure again and again, however long the calm: the queue forgets the actions for a cause
// after a while without a query.
func TestAPressureIsNeverLeftAloneForLong(t *testing.T) {
	s := simple(t)
	p := s.spawn()
	s.turns(p, 6)
	s.overrun = func(string, int64) int64 { return 0 }
	s.options.Calm = time.Hour
	p = s.spawn()
	s.turns(p, 8)
	if got := s.pressure("a"); got != "Eased+taint" {
		t.Fatalf("the node is %q", got)
	}
	result, err := p.ladder.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: s.nodes[0]}})
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute {
		t.Errorf("it is looked at again after %s, %v", result.RequeueAfter, err)
	}
}

// A lost agent leaves no taint and no waiting action. If the agent comes back before, the same pressure goes on.
func TestAnAgentThatDoesNotComeBack(t *testing.T) {
	s := simple(t)
	s.options.Patience = time.Hour
	s.budget("none", 0)
	p := s.spawn()
	s.turns(p, 5)
	expectLines(t, "actions", s.actions(), "Preempt RTPressure Waiting low")
	s.silent = true
	s.turns(p, 5)
	s.clock.Step(9 * time.Minute)
	expectLines(t, "after nine minutes", s.turns(p, 5), "OverrunsAtHighBudget+taint")
	s.silent = false
	s.turns(p, 2)
	s.silent = true
	s.turns(p, 2)
	s.clock.Step(9 * time.Minute)
	expectLines(t, "nine minutes after it was heard", s.turns(p, 5), "OverrunsAtHighBudget+taint")
	s.clock.Step(time.Minute)
	expectLines(t, "then", s.turns(p, 8), "OverrunsAtHighBudget+taint", "Lifting+taint", "Lifting", "Ended")
	expectLines(t, "actions", s.actions(), "Preempt RTPressure Withdrawn low")
	s.silent = false
	if got := s.turns(p, 6); got[len(got)-1] != "OverrunsAtHighBudget+taint" {
		t.Errorf("it is back, and the node is %q", got)
	}
}

// The planner passes over a pod whose passage is unknown, and names it. If nothing else helps either, the unknown passage is an
// error.
func TestPodWithUnknownPassageIsPassedOver(t *testing.T) {
	s := simple(t)
	s.node("b", 1)
	s.lost = []string{"low"}
	p := s.spawn()
	s.turns(p, 5)
	expectLines(t, "actions", s.actions(), "Migrate RTPressure Succeeded high")
	list := &v1alpha1.RTActionList{}
	s.must(s.api.List(t.Context(), list))
	want := "(of these it is not known how they would go: pod " + s.namespace + "/low: its policy cannot be read)"
	if len(list.Items) != 1 || !strings.Contains(list.Items[0].Spec.Message, want) {
		t.Errorf("got %+v, want %q in it", list.Items, want)
	}
}

func TestUnknownPassagesOfAllPodsAreAnError(t *testing.T) {
	s := simple(t)
	s.node("b", 1)
	s.lost = []string{"high", "low", "other"}
	m := s.mckube("low")
	m.Spec.Criticality = "High" // so that it is not preempted
	s.must(s.api.Update(t.Context(), m))
	before, p := unansweredNodes(t), s.spawn()
	p.at = -1 // errors are looked at here
	var failed error
	for range 4 {
		s.live()
		p.turn()
		s.clock.Step(tick)
		if _, err := p.ladder.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: s.nodes[0]}}); err != nil {
			failed = err
		}
	}
	if failed == nil || !strings.Contains(failed.Error(), "its policy cannot be read") || len(s.actions()) > 0 {
		t.Errorf("error %v; actions %q", failed, s.actions())
	}
	told := slices.ContainsFunc(s.told.list, func(e karpenterevents.Event) bool {
		return e.Reason == "PressureUnanswered" && strings.Contains(e.Message, "it is not known how they would go: pod "+s.namespace+"/high: its policy cannot be read")
	})
	if n := unansweredNodes(t) - before; n != 1 || !told {
		t.Errorf("%v nodes count as unanswered, told is %t", n, told)
	}
}
