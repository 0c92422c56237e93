package ladder_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// A budget that allows nothing keeps its pods, and not the climb: it is waited for once, and a node asked for as soon with many of them in the way as with
// one.
func TestPodsThatABudgetKeepsDoNotKeepTheClimb(t *testing.T) {
	for _, n := range []int{1, 24} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newStage(t)
			s.node("a", 1)
			s.run("high", "a", "High", 20, 0)
			for i := range n {
				s.run(fmt.Sprintf("low-%02d", i), "a", "Low", 2, 0)
			}
			s.overrun = func(pod string, others int64) int64 {
				if pod == "high" && others > 0 {
					return 5
				}
				return 0
			}
			s.must(s.api.Create(t.Context(), &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "none"},
				Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{mcv1.LabelRT: "x"}}},
			}))
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

// What a PodDisruptionBudget keeps goes after everything dearer that it does not keep, and is told.
func TestWhatABudgetKeepsGoesLast(t *testing.T) {
	t.Parallel()
	w := crowded()
	w.node("b", 1)
	p := w.planner("a", ladder.SourceOverruns, "high")
	kept := map[rules.Kind]bool{rules.Rearrange: true, rules.Migrate: true, rules.Preempt: true, rules.OpenNode: true}
	p.Kept = func(r orchestration.Request) string {
		if kept[r.Kind] {
			return "PodDisruptionBudget x allows nothing"
		}
		return ""
	}
	if a, ok := p.Choose(); !ok || a.Kind != rules.Migrate || a.Vain {
		t.Errorf("got %s, vain %t, though nobody has waited yet", a.Kind, a.Vain)
	}
	p.Answers = []*v1alpha1.RTAction{{Spec: v1alpha1.RTActionSpec{Kind: "Preempt"}, Status: v1alpha1.RTActionStatus{Phase: "Expired"}}}
	if a, ok := p.Choose(); !ok || a.Kind != rules.ReplaceNode || a.Vain || !strings.Contains(a.Request.Message, "Migrate: PodDisruptionBudget x allows nothing") {
		t.Errorf("got %s, vain %t, %q, though everything cheaper is kept", a.Kind, a.Vain, a.Request.Message)
	}
	kept[rules.ReplaceNode] = true
	if a, ok := p.Choose(); !ok || a.Kind != rules.Migrate || !a.Vain {
		t.Errorf("got %s, vain %t, though all is kept", a.Kind, a.Vain)
	}
}
