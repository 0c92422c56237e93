package ladder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// record lets the chosen actions of a planner end, and records them as the queue would.
type record struct {
	ladder.Planner
	tickets map[string]orchestration.Ticket
}

func newRecord(p ladder.Planner) *record {
	r := &record{p, map[string]orchestration.Ticket{}}
	r.Ticket = func(q orchestration.Request) (orchestration.Ticket, bool) {
		t, ok := r.tickets[r.key(q)]
		return t, ok
	}
	return r
}

func (r *record) key(q orchestration.Request) string {
	return fmt.Sprint(q.Kind, q.Node, q.TargetNode, q.Pods, q.Moves)
}

// over is the result of an answer that just ended.
func (r *record) over(a ladder.Answer, phase rules.Phase) {
	before := r.tickets[r.key(a.Request)]
	t := orchestration.Ticket{Name: "x", Phase: phase, Attempt: before.Attempt + 1}
	if phase != rules.Succeeded || a.Kind == rules.OpenNode {
		t.Again = r.Now.Add(orchestration.RestAfter(t.Attempt))
	}
	r.tickets[r.key(a.Request)] = t
	r.Answers = append(r.Answers, &v1alpha1.RTAction{
		Spec:   v1alpha1.RTActionSpec{Kind: v1alpha1.ActionKind(a.Kind), Pods: a.Request.Pods, Beneficiary: a.Request.Beneficiary},
		Status: v1alpha1.RTActionStatus{Phase: v1alpha1.ActionPhase(phase), PhaseTime: &metav1.MicroTime{Time: r.Now}, Message: "so it was"},
	})
}

// chosen are the answers over a time, each of which ends at once as given for its kind: "kind pods after", where after is the
// time since the answer before.
func (r *record) chosen(long time.Duration, phases map[rules.Kind]rules.Phase) (out []string) {
	last := r.Now
	for end := r.Now.Add(long); r.Now.Before(end); r.Now = r.Now.Add(10 * time.Second) {
		a, ok := r.Choose()
		if !ok {
			continue
		}
		var pods []string
		for _, p := range a.Request.Pods {
			pods = append(pods, p.Name)
		}
		out = append(out, fmt.Sprint(a.Kind, " ", strings.Join(pods, ","), " ", r.Now.Sub(last)))
		last = r.Now
		r.over(a, phases[a.Kind])
	}
	return out
}

// equals is a node without a NodePool, with an affected High container that must stay, beside containers as critical.
func equals(n int) *cluster {
	w := newCluster()
	w.node("a", 1)
	w.run("high", "a", "High", 20, 20, 0)
	w.pods["high"].OwnerReferences = nil
	for i := range n {
		w.run(fmt.Sprintf("n%d", i), "a", "High", int64(8+i), int64(8+i), 0)
	}
	return w
}

// Other pods take an opened node, or it is gone. The controller opens another one after a backoff: three times, while no pod
// goes to any node.
func TestANodeThatHelpsNoLongerIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	r := newRecord(equals(1).planner("a", ladder.SourceOverruns, "high"))
	r.Pool = ""
	done := map[rules.Kind]rules.Phase{rules.OpenNode: rules.Succeeded}
	if got, want := r.chosen(time.Hour, done), []string{"OpenNode n0 0s", "OpenNode n0 30s", "OpenNode n0 1m0s"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if a, ok := r.Choose(); ok || !strings.Contains(strings.Join(a.Passed, ""), "3 nodes were opened for this pressure, and nobody went to any") {
		t.Errorf("%q is passed over", a.Passed)
	}
	r.over(ladder.Answer{Request: orchestration.Request{Kind: rules.Migrate}}, rules.Succeeded)
	r.Answers[len(r.Answers)-1].Spec.Kind = "Migrate" // a pod did go
	if got, want := r.chosen(time.Hour, done), 3; len(got) != want {
		t.Errorf("then %q", got)
	}
}

// The result of one node counts against the next, whatever its beneficiary. The other levels come first, and then the controller
// asks for each node after a longer backoff.
func TestOneProviderIsNotAskedForEachNeighbour(t *testing.T) {
	t.Parallel()
	for _, ends := range []rules.Phase{rules.RolledBack, rules.Failed, rules.Succeeded} {
		w := equals(6)
		w.pods["high"].OwnerReferences = w.pods["n0"].OwnerReferences
		r := newRecord(w.planner("a", ladder.SourceMisses, "high"))
		got := r.chosen(10*time.Minute, map[rules.Kind]rules.Phase{rules.OpenNode: ends, rules.ReplaceNode: rules.Failed})
		first := slices.Clone(got[:min(2, len(got))])
		for i := range first {
			first[i] = strings.Fields(first[i])[0]
		}
		opened := 0
		for _, a := range got {
			if strings.HasPrefix(a, "OpenNode") {
				opened++
			}
		}
		if most := map[bool]int{true: 3, false: 5}[ends == rules.Succeeded]; !slices.Equal(first, []string{"OpenNode", "ReplaceNode"}) || opened > most || opened < 2 {
			t.Errorf("%s: %q, at most %d nodes", ends, got, most)
		}
	}
}

// The results of nodes for a less critical container do not count for a more critical one. Results of the latter count for the
// former.
func TestNodesForLessCriticalDoNotCountForMoreCritical(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 2)
	w.run("mid", "a", "Middle", 40, 40, 0)
	w.run("m0", "a", "Middle", 40, 40, 0)
	w.run("high", "a", "High", 60, 60, 1)
	r := newRecord(w.planner("a", ladder.SourceMisses, "mid"))
	r.Pool = ""
	opened := map[rules.Kind]rules.Phase{rules.OpenNode: rules.Succeeded}
	if got := r.chosen(time.Hour, opened); len(got) != 3 {
		t.Fatalf("for mid: %q", got)
	}
	next := newRecord(w.planner("a", ladder.SourceMisses, "high"))
	next.Pool, next.Answers, next.tickets, next.Now = "", r.Answers, r.tickets, r.Now
	if got := next.chosen(time.Hour, opened); len(got) != 3 || !strings.HasPrefix(got[0], "OpenNode high 0s") {
		t.Errorf("for high: %q", got)
	}
	r.Answers = next.Answers[3:]
	r.tickets = map[string]orchestration.Ticket{}
	if a, ok := r.Choose(); ok {
		t.Errorf("for mid, after three for high: %s", a.What)
	}
}

// The same holds for a budget: an action for a more critical container waits for it once more.
func TestBudgetIsAwaitedAgainForMoreCritical(t *testing.T) {
	t.Parallel()
	for of, want := range map[mcv1.Criticality]bool{"Low": false, "Middle": false, "High": true} {
		w := newCluster()
		w.node("a", 1)
		w.run("high", "a", "High", 40, 40, 0)
		w.run("low", "a", "Low", 30, 30, 0)
		w.budget("none", 0, "low")
		p := stay(w, "high").planner("a", ladder.SourceOverruns, "high")
		p.Pool, p.Answers = "", []*v1alpha1.RTAction{while(rules.Preempt, rules.Expired, "somebody", of, pod("other"))}
		if a, ok := p.Choose(); !ok || a.Kind != rules.Preempt || a.Vain != want {
			t.Errorf("after one for a %s one: %t %s, in vain %t", of, ok, a.What, a.Vain)
		}
	}
}

// An action that did not begin, or was withdrawn, says nothing about the provider.
func TestActionThatDidNotBeginDoesNotCount(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.RTActionStatus){
		"withdrawn": func(s *v1alpha1.RTActionStatus) { s.Phase = "Withdrawn" },
		"expired":   func(s *v1alpha1.RTActionStatus) { s.Phase = "Expired" },
		"unwanted":  func(s *v1alpha1.RTActionStatus) { s.Unwanted = true },
	} {
		r := newRecord(equals(2).planner("a", ladder.SourceOverruns, "high"))
		a, _ := r.Choose()
		r.over(a, rules.RolledBack)
		if then, ok := r.Choose(); ok {
			t.Fatalf("%s: then %s", name, then.What)
		}
		change(&r.Answers[0].Status)
		if then, ok := r.Choose(); !ok || then.Kind != rules.OpenNode || then.Vain || slices.Equal(then.Pods, []types.UID{a.Pods[0]}) {
			t.Errorf("%s: then %s, vain %t", name, then.What, then.Vain)
		}
	}
}

// The same on an API server with the real queue: for minutes other pods take the opened nodes as soon as they are ready.
func TestNodesThatAreTakenAreFollowedByOthers(t *testing.T) {
	s := newStage(t)
	s.node("a", 2)
	high := s.run("high", "a", "High", 40, 0)
	high.OwnerReferences = nil
	s.must(s.api.Update(t.Context(), high))
	s.run("equal", "a", "High", 30, 0)
	s.run("other", "a", "High", 85, 1)
	s.overrun = func(pod string, others int64) int64 {
		if pod == "high" && others > 0 {
			return 5
		}
		return 0
	}
	s.conduct[rules.OpenNode] = rules.Result{Outcome: rules.Succeeded, Message: "node n1 is ready"}
	p := s.spawn()
	s.turns(p, 120)
	expectLines(t, "actions", s.actions(), "OpenNode RTPressure Succeeded equal", "OpenNode RTPressure Succeeded equal", "OpenNode RTPressure Succeeded equal")
	if got := s.told.chain(high); !slices.Contains(got, "PressureUnanswered") {
		t.Errorf("told %q", got)
	}
}
