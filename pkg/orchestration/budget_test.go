package orchestration_test

import (
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// expects has a PodDisruptionBudget protect so many pods, of which one that is wanted and what it allows now are well.
func (s *stage) expects(name string, pods int32) {
	s.Helper()
	b := &policyv1.PodDisruptionBudget{}
	s.must(s.api.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, b))
	b.Status.ExpectedPods = pods
	s.must(s.api.Status().Update(s.Context(), b))
}

// An action that needs two of a budget of which one is left is not passed by one that needs one, if two can ever be left.
func TestABudgetIsKeptForTheFirstAction(t *testing.T) {
	for name, c := range map[string]struct {
		pods int32
		want []string
		end  []string
	}{
		"two may come":      {3, []string{"Both Waiting for PodDisruptionBudget", "One Waiting for NotItsTurn"}, []string{"Both Succeeded", "One Waiting for PodDisruptionBudget"}},
		"two will not come": {2, []string{"Both Waiting for PodDisruptionBudget", "One Running"}, []string{"Both Succeeded", "One Succeeded"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.node("n1")
			s.budget("web", "a", 1)
			s.expects("web", c.pods)
			p := s.spawn()
			s.turns(p, 1)
			s.submit(p, s.request(rules.Preempt, "Both", "n1", s.pod("a1"), s.pod("a2")))
			s.clock.Step(time.Second)
			s.submit(p, s.request(rules.Preempt, "One", "n1", s.pod("a3")))
			s.turns(p, 1)
			s.is(c.want...)
			s.turns(p, 5)
			s.allow("web", 2)
			s.turns(p, 6)
			s.is(c.end...)
		})
	}
}
