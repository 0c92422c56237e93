package ladder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// fullEscalation is a High container with a crowded core where each escalation level helps a little: small fits on the other
// core, large on another node, and bare nowhere. It overruns while other containers have more than 12 % of its core.
func fullEscalation(t testing.TB) *stage {
	s := newStage(t)
	s.node("a", 2)
	s.node("b", 1)
	s.run("high", "a", "High", 40, 0)
	s.run("small", "a", "Low", 10, 0)
	s.run("large", "a", "Low", 20, 0)
	bare := s.run("bare", "a", "Low", 15, 0)
	bare.OwnerReferences = nil
	s.must(s.api.Update(t.Context(), bare))
	s.run("other", "a", "High", 72, 1)
	s.overrun = func(pod string, others int64) int64 {
		if pod == "high" && others > 12 {
			return 5
		}
		return 0
	}
	return s
}

// tick is how much time a turn takes.
const tick = 2 * time.Second

// play goes on until the node's pressure has been over for a while. Another process follows one that dies.
func (s *stage) play(p *process) []string {
	s.Helper()
	var stages []string
	quiet := 0
	for range 150 {
		s.live()
		p.turn()
		if p.dead {
			p = s.spawn()
		}
		now := s.pressure("a")
		if len(stages) == 0 || stages[len(stages)-1] != now {
			stages = append(stages, now)
		}
		s.clock.Step(tick)
		if quiet++; now != "Ended" {
			quiet = 0
		}
		if quiet == 3 {
			return stages
		}
	}
	s.Errorf("it does not end: %q, %q", stages, s.actions())
	return stages
}

// wanted is the required course, whatever has happened to processes meanwhile.
func (s *stage) wentWell() {
	s.Helper()
	expectLines(s, "what was done", s.done, "small to core 1", "large to node b", "small to core 0")
	want := []string{"Rearrange RTPressure Succeeded", "Migrate RTPressure Succeeded large", "Preempt RTPressure Succeeded bare", "Rearrange Recovery Succeeded"}
	expectLines(s, "actions", s.actions(), want...)
	if len(s.episodes) != 1 {
		s.Errorf("%d episodes, want one: %v", len(s.episodes), s.episodes)
	}
	pod := &corev1.PodList{}
	s.must(s.api.List(s.Context(), pod))
	if slices.ContainsFunc(pod.Items, func(p corev1.Pod) bool { return p.Namespace == s.namespace && p.Name == "bare" }) {
		s.Error("bare is still there")
	}
}

func expectLines(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %s\nwant %s", what, strings.Join(got, "; "), strings.Join(want, "; "))
	}
}

func TestFullEscalation(t *testing.T) {
	s := fullEscalation(t)
	p := s.spawn()
	stages := s.play(p)
	s.wentWell()
	expectLines(t, "stages", stages, "", "OverrunsAtHighBudget", "OverrunsAtHighBudget+taint", "Eased+taint", "Recovering+taint", "Lifting+taint", "Lifting", "Ended")
	chain := []string{"PressureBegan", "PressureAnswered", "PressureEased", "PressureEnded"}
	withReturn := []string{"PressureBegan", "PressureAnswered", "PressureEased", "PressureGivenBack", "PressureEnded"}
	expectLines(t, "Events of the node", s.told.chain(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-a"}}), withReturn...)
	expectLines(t, "Events of the pod", s.told.chain(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "high"}}), chain...)
	expectLines(t, "Events of its McKube", s.told.chain(&mcv1.McKube{ObjectMeta: metav1.ObjectMeta{Name: "high"}}), chain...)
}

// deathsPerPlay is at how many of its points, chosen at random, a process dies, or does not learn of its write, in each play of
// a run of `make test`. A play has 15 to 50 points, and takes seconds.
const deathsPerPlay = 2

// A process dies before a write, or does not learn of it. A new process, which knows only the API, continues: it does everything
// once, and leaves nothing behind.
func TestAnotherProcessGoesOnWhereverOneDies(t *testing.T) {
	points := 0
	t.Run("undisturbed", func(t *testing.T) {
		s := fullEscalation(t)
		p := s.spawn()
		s.play(p)
		points = p.points
	})
	t.Logf("%d points", points)
	if points < 25 {
		t.Errorf("only %d points: this tests next to nothing", points)
	}
	for _, losesReply := range []bool{false, true} {
		t.Run(fmt.Sprintf("loses reply %t", losesReply), func(t *testing.T) {
			for _, at := range sampling.Points(t, 1, points, deathsPerPlay) {
				t.Run(fmt.Sprintf("at %d", at), func(t *testing.T) {
					s := fullEscalation(t)
					p := s.spawn()
					p.at, p.losesReply = at, losesReply
					s.play(p)
					s.wentWell()
				})
			}
		})
	}
}

// turns lets a process go on for some turns, and returns the stages of node a that it passed.
func (s *stage) turns(p *process, turns int) []string {
	s.Helper()
	var stages []string
	for range turns {
		s.live()
		p.turn()
		s.clock.Step(tick)
		if now := s.pressure("a"); len(stages) == 0 || stages[len(stages)-1] != now {
			stages = append(stages, now)
		}
	}
	return stages
}

// simple is a High container that overruns while a Low one shares its core, beside a full core.
func simple(t testing.TB) *stage {
	s := newStage(t)
	s.node("a", 2)
	s.run("high", "a", "High", 40, 0)
	s.run("low", "a", "Low", 20, 0)
	s.run("other", "a", "High", 85, 1)
	s.overrun = func(pod string, others int64) int64 {
		if pod == "high" && others > 0 {
			return 5
		}
		return 0
	}
	return s
}

// Nothing helps: the controller publishes that once. When the pressure ends by itself nothing is left of it.
func TestPressureWithoutAnswer(t *testing.T) {
	s := simple(t)
	for _, kind := range rules.Kinds {
		s.conduct[kind] = rules.Result{Undo: true, Message: "no"}
	}
	p := s.spawn()
	s.turns(p, 20)
	expectLines(t, "actions", s.actions(), "Preempt RTPressure RolledBack low", "OpenNode RTPressure RolledBack low",
		"ReplaceNode RTPressure RolledBack")
	told := s.told.chain(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "high"}})
	expectLines(t, "Events", told, "PressureBegan", "PressureAnswered", "PressureUnanswered")
	s.overrun = func(string, int64) int64 { return 0 }
	expectLines(t, "stages", s.turns(p, 20), "OverrunsAtHighBudget+taint", "Eased+taint", "Recovering+taint", "Lifting+taint", "Lifting", "Ended")
}

// A kind without an executor, and a budget that always forbids the eviction, cost only time: the planner tries the next level.
// When the pressure vanishes meanwhile, the controller withdraws waiting actions.
func TestActionThatCannotBeginIsPassedOver(t *testing.T) {
	s := simple(t)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "none"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{mcv1.LabelRT: "x"}}},
	}
	s.must(s.api.Create(t.Context(), budget))
	s.unable[rules.OpenNode] = true
	s.conduct[rules.ReplaceNode] = rules.Result{Message: "it takes its time"}
	p := s.spawn()
	s.turns(p, 5)
	expectLines(t, "while the budget forbids it", s.actions(), "Preempt RTPressure Waiting low")
	s.turns(p, 12)
	expectLines(t, "after that", s.actions(), "Preempt RTPressure Expired low", "OpenNode RTPressure Withdrawn low", "ReplaceNode RTPressure Running")
	s.turns(p, 12)
	s.overrun = func(string, int64) int64 { return 0 }
	s.conduct[rules.ReplaceNode] = rules.Result{Outcome: rules.Failed, Message: "too late"}
	s.turns(p, 25)
	if got := s.pressure("a"); got != "Ended" {
		t.Errorf("the node is %q", got)
	}
}

func TestPressureThatVanishesWhileAnActionWaits(t *testing.T) {
	s := simple(t)
	s.must(s.api.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "none"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{mcv1.LabelRT: "x"}}},
	}))
	s.options.Patience = time.Minute
	p := s.spawn()
	s.turns(p, 5)
	s.overrun = func(string, int64) int64 { return 0 }
	s.turns(p, 20)
	expectLines(t, "actions", s.actions(), "Preempt RTPressure Withdrawn low")
	if got := s.pressure("a"); got != "Ended" {
		t.Errorf("the node is %q", got)
	}
}

// Pressure that comes back during the recovery is the same: the controller moves nothing twice for it. When nothing else helps
// it publishes that. Once the pressure has ended by itself everything ends.
func TestPressureThatComesBack(t *testing.T) {
	s := fullEscalation(t)
	s.overrun = func(pod string, others int64) int64 {
		if pod == "high" && others > 5 {
			return 5
		}
		return 0
	}
	p := s.spawn()
	stages := s.turns(p, 40)
	expectLines(t, "stages", stages, "", "OverrunsAtHighBudget", "OverrunsAtHighBudget+taint", "Eased+taint", "Recovering+taint", "OverrunsAtHighBudget+taint")
	expectLines(t, "what was done", s.done, "small to core 1", "large to node b", "small to core 0")
	chain := s.told.chain(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "high"}})
	expectLines(t, "Events, before what rests is tried again", chain[:min(len(chain), 6)],
		"PressureBegan", "PressureAnswered", "PressureEased", "PressureReturned", "PressureAnswered", "PressureUnanswered")
	s.overrun = func(string, int64) int64 { return 0 }
	expectLines(t, "stages", s.turns(p, 40), "OverrunsAtHighBudget+taint", "Eased+taint", "Recovering+taint", "Lifting+taint", "Lifting", "Ended")
	if len(s.episodes) != 1 {
		t.Errorf("%d episodes", len(s.episodes))
	}
}

// A moved container stays if its old core would be fuller than its new one, as long as the beneficiary is on the node: back
// there it would be in its way again.
func TestContainerStaysIfItsOldCoreIsFuller(t *testing.T) {
	s := newStage(t)
	s.node("a", 2)
	s.run("high", "a", "High", 40, 0)
	s.run("low", "a", "Low", 20, 0)
	s.overrun = func(pod string, others int64) int64 {
		if pod == "high" && others > 0 {
			return 5
		}
		return 0
	}
	s.play(s.spawn())
	expectLines(t, "what was done", s.done, "low to core 1")
}

// The report of a silent agent does not count: the controller escalates nothing, and moves nothing back.
func TestASilentAgentStopsEverything(t *testing.T) {
	s := simple(t)
	s.conduct[rules.Preempt] = rules.Result{Message: "it takes its time"}
	p := s.spawn()
	s.turns(p, 4)
	s.silent = true
	s.turns(p, 20)
	expectLines(t, "stages", s.turns(p, 5), "OverrunsAtHighBudget+taint")
	expectLines(t, "actions", s.actions(), "Preempt RTPressure Running low")
}

// The controller removes a taint without a pressure, also when the RTNode no longer exists.
func TestTaintsThatAreLeftGo(t *testing.T) {
	s := simple(t)
	s.overrun = func(string, int64) int64 { return 0 }
	p := s.spawn()
	taint := func() {
		n := &corev1.Node{}
		s.must(s.api.Get(t.Context(), client.ObjectKey{Name: s.nodes[0]}, n))
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: mcv1.TaintPressure, Effect: corev1.TaintEffectNoSchedule})
		s.must(s.api.Update(t.Context(), n))
	}
	taint()
	expectLines(t, "stages", s.turns(p, 3), "")
	taint()
	s.must(s.api.Delete(t.Context(), s.rtNode(s.nodes[0])))
	p.turn()
	n := &corev1.Node{}
	s.must(s.api.Get(t.Context(), client.ObjectKey{Name: s.nodes[0]}, n))
	if len(n.Spec.Taints) > 0 {
		t.Errorf("it still has %v", n.Spec.Taints)
	}
}

// Of two nodes that want the same room one gets it, and the other continues without.
func TestTwoPressuresThatWantTheSameRoom(t *testing.T) {
	s := newStage(t)
	for _, node := range []string{"a", "c"} {
		s.node(node, 1)
		s.run("high-"+node, node, "High", 35, 0)
		s.run("low-"+node, node, "Low", 50, 0)
	}
	s.node("b", 1)
	s.overrun = func(pod string, others int64) int64 {
		if strings.HasPrefix(pod, "high") && others > 0 {
			return 5
		}
		return 0
	}
	p := s.spawn()
	s.play(p)
	s.turns(p, 10)
	if a, c := s.pressure("a"), s.pressure("c"); a != "Ended" || c != "Ended" {
		t.Errorf("they are %q and %q", a, c)
	}
	got := strings.Join(s.actions(), "; ")
	if strings.Count(got, "Migrate RTPressure Succeeded") != 1 || strings.Count(got, "Preempt RTPressure Succeeded") != 1 || len(s.done) != 1 {
		t.Errorf("got %s; %q", got, s.done)
	}
}

// The actions that wait for a node end with the node.
func TestANodeThatGoes(t *testing.T) {
	s := simple(t)
	s.must(s.api.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "none"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{mcv1.LabelRT: "x"}}},
	}))
	s.options.Patience = time.Minute
	p := s.spawn()
	s.turns(p, 5)
	expectLines(t, "before", s.actions(), "Preempt RTPressure Waiting low")
	s.must(s.api.Delete(t.Context(), s.rtNode(s.nodes[0])))
	p.turn()
	p.turn()
	expectLines(t, "after", s.actions(), "Preempt RTPressure Withdrawn low")
}
