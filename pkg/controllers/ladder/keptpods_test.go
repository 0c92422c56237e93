package ladder_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// budget is a budget over all real-time pods. It lets a number of them go.
func (s *stage) budget(name string, allowed int32) {
	s.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(allowed))
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{mcv1.LabelRT: "x"}}
	s.must(s.api.Create(s.Context(), b))
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: allowed}
	s.must(s.api.Status().Update(s.Context(), b))
}

// beside has pods on core 0 of node a, and a container that is affected as long as there are others.
func (s *stage) beside(lows int) {
	s.Helper()
	s.node("a", 1)
	s.run("high", "a", "High", 20, 0)
	for i := range lows {
		s.run(fmt.Sprintf("low-%02d", i), "a", "Low", 2, 0)
	}
	s.overrun = func(pod string, others int64) int64 {
		if pod == "high" && others > 0 {
			return 5
		}
		return 0
	}
}

// A node for which all that would help is tried in vain always counts as one without an answer, also while each is tried for the
// first time. The alert is for nodes that have had no answer for minutes.
func TestActionInVainIsNoAnswer(t *testing.T) {
	s := newStage(t)
	s.beside(6)
	s.budget("none", 0)
	s.conduct[rules.OpenNode] = rules.Result{Undo: true, Message: "no machine"}
	s.conduct[rules.ReplaceNode] = rules.Result{Undo: true, Message: "no machine"}
	before, p := unansweredNodes(t), s.spawn()
	since, evictions := time.Time{}, 0
	for began := s.clock.Now(); s.clock.Now().Sub(began) < 5*time.Minute; s.clock.Step(2 * time.Second) {
		s.live()
		p.turn()
		switch n := unansweredNodes(t) - before; {
		case n > 0 && since.IsZero():
			since, evictions = s.clock.Now(), s.evictions()
		case n == 0 && !since.IsZero():
			t.Fatalf("it counts as answered %s after it began to count as unanswered: %q", s.clock.Now().Sub(since), s.actions())
		}
	}
	if more := s.evictions() - evictions; since.IsZero() || more < 2 {
		t.Errorf("unanswered since %s, and %d pods were to be evicted since then: this tests nothing", since, more)
	}
}

// evictions are how many pods the actions were to evict.
func (s *stage) evictions() int {
	s.Helper()
	out := map[string]bool{}
	for _, action := range s.actions() {
		if words := strings.Fields(action); words[0] == string(rules.Preempt) {
			out[words[len(words)-1]] = true
		}
	}
	return len(out)
}

// A budget that allows nothing blocks its pods, and not the escalation. The controller waits for it once. It asks for a node as
// soon with many blocked pods in the way as with one.
func TestPodsBlockedByBudgetDoNotBlockEscalation(t *testing.T) {
	for _, n := range []int{1, 24} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newStage(t)
			s.beside(n)
			s.budget("none", 0)
			s.conduct[rules.OpenNode] = rules.Result{Message: "it takes its time"}
			p := s.spawn()
			asked := map[string]bool{}
			open := string(rules.OpenNode)
			for began := s.clock.Now(); !asked[open] && s.clock.Now().Sub(began) < s.options.Patience+time.Minute; s.clock.Step(5 * time.Second) {
				s.live()
				p.turn()
				list := &v1alpha1.RTActionList{}
				s.must(s.api.List(t.Context(), list))
				for _, o := range list.Items {
					if o.Spec.Node == s.nodes[0] {
						asked[string(o.Spec.Kind)+" "+string(o.Status.Phase)], asked[string(o.Spec.Kind)] = true, true
					}
				}
			}
			if !asked[open] || !asked["Preempt Expired"] {
				t.Errorf("asked for %v", asked)
			}
		})
	}
}

// Two of four pods must go for a container without a core, and a budget blocks one of the cheapest two. With real budgets, queue
// and evictions, the other one and a more expensive one go at once.
func TestBudgetDecidesWhichOfFourPodsGo(t *testing.T) {
	s := newStage(t)
	s.node("a", 1)
	for _, name := range []string{"a1", "b1", "c1", "d1"} {
		ms, covered := int64(21), strings.ContainsAny(name, "ab")
		if covered {
			ms = 20
		}
		p := s.run(name, "a", "Low", ms, 0)
		p.Labels["covered"] = fmt.Sprint(covered)
		status := p.Status
		s.must(s.api.Update(t.Context(), p))
		p.Status = status
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		s.must(s.api.Status().Update(t.Context(), p))
	}
	high := s.run("high", "a", "High", 45, 0)
	s.spec(high.Spec.NodeName, func(r *v1alpha1.RTNode) { r.Spec.Servers = r.Spec.Servers[:4] }) // no core of the node holds it
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "ab"}}
	b.Spec.MaxUnavailable, b.Spec.Selector = ptr.To(intstr.FromInt32(1)), &metav1.LabelSelector{MatchLabels: map[string]string{"covered": "true"}}
	s.must(s.api.Create(t.Context(), b))
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2}
	s.must(s.api.Status().Update(t.Context(), b))
	s.turns(s.spawn(), 10)
	got, _, _ := strings.Cut(strings.Join(s.actions(), ";"), ";") // after that the controller puts it on the core
	covered := strings.Count(got, "a1") + strings.Count(got, "b1")
	if !strings.HasPrefix(got, "Preempt RTPressure Succeeded") || len(strings.Fields(got)) != 5 || covered != 1 || len(s.actions()) > 2 {
		t.Errorf("got %q, want one preemption of two, of whom the budget covers one", s.actions())
	}
}

// The planner waits once for a PodDisruptionBudget. From then on the pods that it blocks go after all more expensive pods that
// it does not block. The controller publishes that.
func TestPodsBlockedByBudgetGoLast(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.node("b", 1)
	w.budget("none", 0, "high", "small", "large", "other")
	p := w.planner("a", ladder.SourceOverruns, "high")
	byDisruption := expired(rules.Preempt)
	byDisruption.Status.WaitingFor = orchestration.ReasonNodeBeingDisrupted
	for _, answers := range [][]*v1alpha1.RTAction{nil, {byDisruption}} {
		p.Answers = answers
		if a, ok := p.Choose(); !ok || a.What != "moving default/large to node b" || a.Vain {
			t.Errorf("got %s, vain %t, though nobody has waited for a budget yet", a.What, a.Vain)
		}
	}
	p.Answers = []*v1alpha1.RTAction{expired(rules.Preempt)}
	want := "Migrate: PodDisruptionBudget none allows 0 disruptions now; 1 are needed"
	if a, ok := p.Choose(); !ok || a.Kind != rules.ReplaceNode || a.Vain || !strings.Contains(a.Request.Message, want) {
		t.Errorf("got %s, vain %t, %q, though everything cheaper is kept", a.Kind, a.Vain, a.Request.Message)
	}
	p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
		return orchestration.Ticket{Name: "x", Phase: rules.RolledBack}, r.Kind == rules.ReplaceNode
	}
	if a, ok := p.Choose(); !ok || a.What != "moving default/large to node b" || !a.Vain {
		t.Errorf("got %s, vain %t, though all is kept", a.What, a.Vain)
	}
	p.Passage = func(*state.PodView, string) ladder.Passage { return ladder.Passage{Beside: true} }
	if a, ok := p.Choose(); !ok || a.What != "moving default/large to node b" || a.Vain || !a.Request.Beside {
		t.Errorf("got %s, vain %t, though another serves before it goes", a.What, a.Vain)
	}
	p.Passage = func(_ *state.PodView, node string) ladder.Passage { return ladder.Passage{Beside: node != "b"} }
	if a, ok := p.Choose(); !ok || a.What != "moving default/large to node b" || !a.Vain || a.Request.Beside {
		t.Errorf("got %s, vain %t, though to this node it goes with its state", a.What, a.Vain)
	}
}

// While an action waits for a budget that may let a less critical pod go, no more critical pod goes.
func TestBudgetIsAwaitedBeforeMoreCriticalPodGoes(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.node("b", 1)
	w.budget("none", 0, "small", "large")
	p := w.planner("a", ladder.SourceOverruns, "high")
	for times, want := range []string{"Migrate: moving default/large to node b", "Migrate: moving default/high itself to node b"} {
		if got, a := chosen(t, p), must(p); got != want || a.Vain {
			t.Errorf("after %d waits: got %q, vain %t, want %q", times, got, a.Vain, want)
		}
		p.Answers = append(p.Answers, expired(rules.Migrate))
	}
}

// expired is an action that expired before it began.
func expired(kind rules.Kind) *v1alpha1.RTAction {
	return &v1alpha1.RTAction{Spec: v1alpha1.RTActionSpec{Kind: v1alpha1.ActionKind(kind), Beneficiary: v1alpha1.ActionBeneficiary{Criticality: "High"}}, Status: v1alpha1.RTActionStatus{Phase: "Expired"}}
}
