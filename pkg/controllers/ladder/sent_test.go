package ladder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// removes deletes a node, as if it was closed.
func (s *stage) removes(name string) {
	s.Helper()
	name = s.namespace + "-" + name
	for _, o := range []client.Object{&resourcev1.ResourceSlice{}, &v1alpha1.RTNode{}, &corev1.Node{}} {
		o.SetName(name)
		s.must(client.IgnoreNotFound(s.api.Delete(s.Context(), o, client.GracePeriodSeconds(0))))
	}
	s.nodes = slices.DeleteFunc(s.nodes, func(n string) bool { return n == name })
}

// A pressure goes on for long, while nodes come and go (consolidation, drift). No attempt to move the affected pod to any of
// them helps. The attempts have the backoff of attempts at one node, and the queue keeps few of them.
func TestAttemptsAtNodesThatComeAndGoRest(t *testing.T) {
	for name, c := range map[string]struct {
		phase  string
		budget bool
	}{"undone": {"RolledBack", false}, "kept by a budget": {"Expired", true}} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.node("a", 1)
			s.sick("a")
			for _, kind := range rules.Kinds {
				if kind != rules.Migrate || !c.budget {
					s.conduct[kind] = rules.Result{Undo: true, Message: "no"}
				}
			}
			if c.budget {
				s.budget("none", 0)
			}
			p := s.spawn()
			begin, tried, most := s.clock.Now(), map[string]bool{}, 0
			for i := range sampling.Count(10, 24) {
				s.node(fmt.Sprint("b", i), 2)
				for range 12 {
					s.misses["sick"] += 3
					s.turns(p, 1)
				}
				s.removes(fmt.Sprint("b", i))
				s.clock.Step(15 * time.Second)
				list := &v1alpha1.RTActionList{}
				s.must(s.api.List(s.Context(), list))
				stored := 0
				for _, o := range list.Items {
					if o.Spec.Kind == "Migrate" && string(o.Status.Phase) == c.phase {
						tried[o.Name] = true
						stored++
					}
				}
				most = max(most, stored)
			}
			lasted, attempts, at := s.clock.Now().Sub(begin), 3, time.Duration(0)
			for at = orchestration.RestAfter(3); at < lasted; at += orchestration.RestAfter(int32(attempts)) {
				attempts++
			}
			if len(tried) < 4 || len(tried) > attempts || most > 9 {
				t.Errorf("%d attempts in %s, want 4 to %d; %d were known at once", len(tried), lasted, attempts, most)
			}
		})
	}
}

// sent is an attempt to move the pods of an answer to a node.
func sent(a ladder.Answer, to string, phase rules.Phase, at time.Time) *v1alpha1.RTAction {
	return &v1alpha1.RTAction{
		ObjectMeta: metav1.ObjectMeta{Name: "to-" + to},
		Spec:       v1alpha1.RTActionSpec{Kind: "Migrate", Pods: a.Request.Pods, TargetNode: to, Beneficiary: a.Request.Beneficiary},
		Status:     v1alpha1.RTActionStatus{Phase: v1alpha1.ActionPhase(phase), PhaseTime: &metav1.MicroTime{Time: at}, Message: "so it was"},
	}
}

// Two nodes do not count, and the planner tries a third at once. From then on it tries the next after the backoff of three, and
// only if nothing else is left.
func TestAfterThreeNodesAllAttemptsCountAgainstTheNext(t *testing.T) {
	t.Parallel()
	w, few := contendedCores(), equals(1) // the less critical may be evicted; as critical ones not
	w.node("b", 1)
	few.node("b", 1)
	choice, only := stay(w, "small", "high").planner("a", ladder.SourceOverruns, "high"), few.planner("a", ladder.SourceOverruns, "high")
	only.Pool = ""
	for i, node := range []string{"gone1", "gone2", "gone3"} {
		for _, p := range []*ladder.Planner{&choice, &only} {
			a, _ := p.Choose()
			if a.Kind != rules.Migrate || a.Target != "b" || a.Vain {
				t.Fatalf("after %d nodes: %s %s, in vain %t", i, a.Kind, a.What, a.Vain)
			}
			p.Answers = append(p.Answers, sent(a, node, rules.RolledBack, p.Now))
		}
	}
	if a, _ := choice.Choose(); a.Kind != rules.Preempt {
		t.Errorf("after three nodes, at once: %s %s", a.Kind, a.What)
	}
	began := only.Now
	slices.Reverse(only.Answers) // they are sorted by age: an attempt after another that did not begin is as old as that one
	for i, o := range only.Answers {
		o.Status.PhaseTime.Time = began.Add(-time.Duration(i) * time.Minute)
	}
	only.Now = began.Add(orchestration.RestAfter(3) - time.Second)
	if a, ok := only.Choose(); ok || !strings.Contains(strings.Join(a.Passed, ""), "action to-gone3 is RolledBack (so it was)") || !a.Again.Equal(only.Now.Add(time.Second)) {
		t.Errorf("before the rest of three is over: %t %s, again at %s, %q", ok, a.What, a.Again, a.Passed)
	}
	only.Now = began.Add(orchestration.RestAfter(3))
	if a, ok := only.Choose(); !ok || a.Target != "b" || !a.Vain {
		t.Errorf("then: %t %s, in vain %t", ok, a.What, a.Vain)
	}
}

// Attempts to move a pod for a less critical container do not count for a more critical one, nor do withdrawn ones. The same
// holds for opened nodes.
func TestAttemptsForLessCriticalDoNotCountForMoreCritical(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*v1alpha1.RTAction)
		vain   bool
	}{
		"for one as critical": {func(*v1alpha1.RTAction) {}, true},
		"for a lesser one":    {func(o *v1alpha1.RTAction) { o.Spec.Beneficiary.Criticality = "Middle" }, false},
		"withdrawn":           {func(o *v1alpha1.RTAction) { o.Status.Phase = "Withdrawn" }, false},
		"unwanted":            {func(o *v1alpha1.RTAction) { o.Status.Unwanted = true }, false},
	} {
		w := equals(1)
		w.node("b", 1)
		p := w.planner("a", ladder.SourceOverruns, "high")
		p.Pool = ""
		first, _ := p.Choose()
		for i := range 6 {
			o := sent(first, fmt.Sprint("gone", i), rules.RolledBack, p.Now)
			c.change(o)
			p.Answers = append(p.Answers, o)
		}
		if a, ok := p.Choose(); ok == c.vain || !c.vain && (a.Target != "b" || a.Vain) {
			t.Errorf("after attempts %s: %t %s, in vain %t", name, ok, a.What, a.Vain)
		}
	}
}

// The last resort waits for three attempts at one pod together, whatever their targets, also if one of the targets still exists.
func TestTheLastResortCountsAttemptsAtAllNodes(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 2)
	w.node("b", 2)
	w.run("one", "a", "High", 20, 40, 0)
	w.run("two", "a", "Middle", 20, 40, 1)
	p := w.planner("a", ladder.SourceMisses, "one", "two")
	p.Answers = []*v1alpha1.RTAction{{
		Spec:   v1alpha1.RTActionSpec{Kind: "Rearrange", Moves: []v1alpha1.ActionMove{{PodUID: "two", Container: "app", Core: 0}}},
		Status: v1alpha1.RTActionStatus{Phase: "Succeeded"},
	}}
	first, _ := p.Choose()
	p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
		if r.Kind == rules.Migrate && r.Pods[0].UID == "one" {
			return orchestration.Ticket{Name: "to-b", Phase: rules.RolledBack, Attempt: 1, Again: p.Now.Add(orchestration.RestAfter(1))}, true
		}
		return orchestration.Ticket{Name: "x", Phase: rules.Failed}, r.Kind != rules.ReplaceNode
	}
	for _, c := range []struct{ node, want string }{{"b", "nothing"}, {"gone1", "nothing"}, {"gone2", "ReplaceNode: replacing node a"}} {
		p.Answers = append(p.Answers, sent(first, c.node, rules.RolledBack, p.Now))
		if got := chosen(t, p); got != c.want {
			t.Errorf("after attempts at %d nodes: %q, want %q", len(p.Answers)-1, got, c.want)
		}
	}
}
