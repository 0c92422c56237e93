package ladder_test

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// undone is the action of an answer that was undone because its target had no room.
func undone(a ladder.Answer) *v1alpha1.RTAction {
	return &v1alpha1.RTAction{
		Spec:   v1alpha1.RTActionSpec{Kind: v1alpha1.ActionKind(a.Kind), Pods: a.Request.Pods, TargetNode: a.Target},
		Status: v1alpha1.RTActionStatus{Phase: "RolledBack", Progress: map[string]string{v1alpha1.ProgressElsewhere: a.Target}},
	}
}

// targets are the nodes to which a planner would move one after the other, each of which turns out to be full.
func targets(p ladder.Planner, times int) (out []string) {
	for range times {
		a, ok := p.Choose()
		if !ok || a.Kind != rules.Migrate {
			break
		}
		out, p.Answers = append(out, a.Target), append(p.Answers, undone(a))
	}
	return out
}

// The planner passes over a node that had no room when the pod's turn came, and takes another, three times. Then the roomiest
// node comes again.
func TestPodGoesElsewhereIfItsTargetIsFull(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	for i, node := range []string{"b", "c", "d", "e"} {
		w.node(node, 1)
		if i > 0 {
			w.run("on-"+node, node, "Low", int64(5*i), int64(5*i), 0)
		}
	}
	if got := targets(w.planner("a", ladder.SourceOverruns, "high"), 4); !slices.Equal(got, []string{"b", "c", "d", "b"}) {
		t.Errorf("it goes to %v", got)
	}
}

// The same holds for a node for the first of several pods that are in the way together.
func TestSetGoesElsewhereIfItsTargetIsFull(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 1)
	w.run("x", "a", "Low", 30, 30, 0)
	w.run("y", "a", "Low", 32, 32, 0)
	w.run("high", "a", "High", 40, 80, -1)
	w.node("b", 2)
	w.node("c", 2)
	w.run("on-c", "c", "Low", 5, 5, 0)
	w.run("on-c-too", "c", "Low", 5, 5, 1)
	if got := targets(w.planner("a", ladder.SourceNoCore, "high"), 3); !slices.Equal(got, []string{"b", "c", "b"}) {
		t.Errorf("it goes to %v", got)
	}
}

// A pod goes without its state rather than to a node that was full.
func TestPodLosesStateRatherThanGoToFullNode(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.node("b", 1)
	w.node("c", 1)
	w.run("on-c", "c", "Low", 10, 10, 0)
	anew := ladder.Passage{Anew: "node c cannot"}
	p := going(w.planner("a", ladder.SourceOverruns, "high"), map[string]ladder.Passage{"large c": anew, "small c": anew})
	if got := targets(p, 2); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("it goes to %v", got)
	}
}

// A target does not count as full if the action was undone for another reason, was withdrawn, or was not undone.
func TestOnlyActionsUndoneForTheirTargetCountAgainstIt(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.RTActionStatus){
		"for another reason":  func(s *v1alpha1.RTActionStatus) { s.Progress = nil },
		"not wanted":          func(s *v1alpha1.RTActionStatus) { s.Unwanted = true },
		"withdrawn before it": func(s *v1alpha1.RTActionStatus) { s.Phase = "Withdrawn" },
	} {
		w := contendedCores()
		w.node("b", 1)
		w.node("c", 1)
		w.run("on-c", "c", "Low", 10, 10, 0)
		p := w.planner("a", ladder.SourceOverruns, "high")
		a, _ := p.Choose()
		o := undone(a)
		change(&o.Status)
		p.Answers = []*v1alpha1.RTAction{o}
		if again, _ := p.Choose(); a.Target != "b" || again.Target != "b" {
			t.Errorf("%s: first to %q, then to %q", name, a.Target, again.Target)
		}
	}
}
