package rtruntime_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// uidsOf are those of pods of a siege.
func uidsOf(s *siege, names ...string) []types.UID {
	s.Helper()
	var out []types.UID
	for _, name := range names {
		out = append(out, s.pod(name).UID)
	}
	return out
}

// The budget of one large Deployment keeps more of the cheapest than a search would try one after the other.
func TestPodsThatABudgetKeepsAreNoneOfMany(t *testing.T) {
	s := newSiege(t, "many")
	var apps []string
	for _, node := range []string{"a", "b"} {
		s.node(node, 12)
		for core := range 12 {
			name := fmt.Sprintf("low-%s-%02d", node, core)
			if node == "b" && core == 11 {
				s.run("middle", node, "Middle", 60, core)
				continue
			}
			s.run(name, node, "Low", 60, core)
			apps = append(apps, name)
		}
	}
	s.budget("none", 0, apps...)
	s.wait("high", "High", 60)
	s.start(preempting).act("high")
	if plan := s.plan("high"); plan == nil || !slices.Equal(plan.Victims, uidsOf(s, "middle")) {
		t.Fatalf("the plan is %+v", plan)
	}
	s.drama("high")
	if !slices.Equal(s.evicted, []string{"middle"}) || s.pod("high").Spec.NodeName == "" {
		t.Errorf("evicted %v, high is on %q", s.evicted, s.pod("high").Spec.NodeName)
	}
}

// Each of two on a core may go, but not both, on more cores than a search would try one after the other.
func TestPairsThatABudgetKeepsAreNoneOfMany(t *testing.T) {
	s := newSiege(t, "pairs")
	var apps []string
	for _, node := range []string{"a", "b"} {
		s.node(node, 10)
		for core := range 9 {
			for _, half := range []string{"x", "y"} {
				name := fmt.Sprintf("low-%s-%d-%s", node, core, half)
				s.run(name, node, "Low", 40, core)
				apps = append(apps, name)
			}
		}
	}
	s.run("middle", "a", "Middle", 60, 9)
	s.run("equal", "b", "High", 60, 9)
	b := s.budget("one", 1, apps...)
	s.wait("high", "High", 60)
	s.start(preempting).act("high")
	if plan := s.plan("high"); plan == nil || !slices.Equal(plan.Victims, uidsOf(s, "middle")) {
		t.Errorf("the plan is %+v", plan)
	}
	s.allow(b, 2)
	s.wait("higher", "High", 60)
	s.start(preempting).act("higher")
	if plan := s.plan("higher"); plan == nil || len(plan.Victims) != 2 {
		t.Errorf("with two allowed the plan is %+v", plan)
	}
}

// Several budgets over one pod: the API server refuses every eviction of it, so another pod goes.
func TestAPodUnderTwoBudgetsIsNoVictim(t *testing.T) {
	s := newSiege(t, "twice")
	s.node("a", 2)
	s.run("small", "a", "Low", 50, 0)
	s.run("large", "a", "Low", 80, 1)
	s.budget("one", 1, "small")
	s.budget("two", 1, "small")
	s.wait("high", "High", 60)
	s.start(preempting).act("high")
	if plan := s.plan("high"); plan == nil || !slices.Equal(plan.Victims, uidsOf(s, "large")) {
		t.Errorf("the plan is %+v", plan)
	}
}

// Where no other pod would do, the plan waits for the cheapest of all.
func TestOnlyPodsThatABudgetKeepsAreWaitedFor(t *testing.T) {
	s := newSiege(t, "only")
	s.node("a", 2)
	s.run("small", "a", "Low", 50, 0)
	s.run("large", "a", "Low", 80, 1)
	s.budget("none", 0, "small", "large")
	s.wait("high", "High", 60)
	b := s.start(preempting)
	for range 4 {
		b.act("high")
		b.look()
	}
	plan := s.plan("high")
	if plan == nil || !slices.Equal(plan.Victims, uidsOf(s, "small")) || len(s.evicted) > 0 {
		t.Fatalf("the plan is %+v, evicted %v", plan, s.evicted)
	}
	if !strings.Contains(plan.Waits, "PodDisruptionBudget none allows 0 disruptions now") {
		t.Errorf("it waits for %q", plan.Waits)
	}
}
