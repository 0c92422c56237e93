package ladder_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// going gives pods the passages for "pod" or "pod node". Nothing is in the way of other pods.
func going(p ladder.Planner, ways map[string]ladder.Passage) ladder.Planner {
	p.Passage = func(pod *state.PodView, node string) ladder.Passage {
		if way, ok := ways[pod.Name+" "+node]; ok {
			return way
		}
		return ways[pod.Name]
	}
	return p
}

func TestPassages(t *testing.T) {
	t.Parallel()
	veto := ladder.Passage{Veto: "its state cannot come along"}
	for name, c := range map[string]struct {
		change func(*cluster)
		ways   map[string]ladder.Passage
		want   string
	}{
		"whoever may not go stays": {nil, map[string]ladder.Passage{"large": veto}, "Migrate: moving default/small to node b"},
		"nobody may go":            {nil, map[string]ladder.Passage{"large": veto, "small": veto, "high": veto}, "Preempt: evicting default/large"},
		"where it may go": {func(w *cluster) {
			w.node("c", 1)
			w.run("there", "c", "Low", 10, 10, 0)
		}, map[string]ladder.Passage{"large b": veto}, "Migrate: moving default/large to node c"},
		"where it can take its state": {func(w *cluster) {
			w.node("c", 1)
			w.run("there", "c", "Low", 10, 10, 0)
		}, map[string]ladder.Passage{"large b": {Anew: "node b cannot"}}, "Migrate: moving default/large to node c"},
		"nowhere with its state": {nil, map[string]ladder.Passage{"large": {Anew: "nobody can"}},
			"Migrate: moving default/large to node b (where it begins anew: nobody can)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := contendedCores()
			w.node("b", 1)
			if c.change != nil {
				c.change(w)
			}
			if got := chosen(t, going(w.planner("a", ladder.SourceOverruns, "high"), c.ways)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The controller opens no node for a pod that must stay, and reports why.
func TestNoNodeIsOpenedForPodThatMustStay(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.gone("small", "large")
	w.run("equal", "a", "High", 20, 30, 0)
	p := w.planner("a", ladder.SourceOverruns, "high")
	if got := chosen(t, p); got != "OpenNode: opening a node for default/equal" {
		t.Fatalf("it is %s", got)
	}
	veto := ladder.Passage{Veto: "its state cannot come along"}
	if got := chosen(t, going(p, map[string]ladder.Passage{"equal": veto})); got != "OpenNode: opening a node for default/high" {
		t.Errorf("with equal bound to its node it is %s", got)
	}
	a, ok := going(p, map[string]ladder.Passage{"equal": veto, "high": veto}).Choose()
	want := "(these must stay: pod default/equal: its state cannot come along, pod default/high: its state cannot come along)"
	if passed := strings.Join(a.Passed, "; "); ok || !strings.Contains(passed, want) {
		t.Errorf("chosen %q; passed over %s", a.What, passed)
	}
}

// The action tells the queue whether PodDisruptionBudgets are charged, and how long the move may take.
func TestAMoveIsAskedForAsItIsMade(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.node("b", 1)
	p := w.planner("a", ladder.SourceOverruns, "high")
	for _, way := range []ladder.Passage{{}, {Beside: true, Timeout: 7 * time.Minute}} {
		want := way.Timeout
		if want == 0 {
			want = 5 * time.Minute
		}
		a, _ := going(p, map[string]ladder.Passage{"large b": way}).Choose()
		if r := a.Request; r.Kind != rules.Migrate || r.Beside != way.Beside || r.Timeout != want {
			t.Errorf("of %+v: %+v", way, r)
		}
	}
}

// A late pod goes without a ready replacement: the replacement might be late on every node, and never become ready. So does a
// less critical late pod when it goes as a neighbour. A pod that only lacks a core or room has a ready replacement first.
func TestLatePodGoesWithoutReadyReplacement(t *testing.T) {
	t.Parallel()
	for source, beside := range map[string]bool{
		ladder.SourceMisses: false, ladder.SourceOverruns: false, ladder.SourceNoCore: true, ladder.SourceNoRoom: true,
	} {
		w := contendedCores()
		w.node("b", 1)
		stays := ladder.Passage{Veto: "it stays"}
		a, _ := going(w.planner("a", source, "high"), map[string]ladder.Passage{"high": {Beside: true}, "large": stays, "small": stays}).Choose()
		if r := a.Request; a.What != "moving default/high itself to node b" || r.Beside != beside {
			t.Errorf("%s: %s, beside %t, want %t", source, a.What, r.Beside, beside)
		}
		w = contendedCores()
		w.node("b", 1)
		p := going(w.planner("a", ladder.SourceOverruns, "high", "large"), map[string]ladder.Passage{"large": {Beside: true}})
		p.Affected[1].Source = source
		if a, _ := p.Choose(); a.What != "moving default/large to node b" || a.Request.Beside != beside {
			t.Errorf("a neighbour of %s: %s, beside %t, want %t", source, a.What, a.Request.Beside, beside)
		}
	}
}

// The controller that closes a node does not move the state of a pod.
func TestANodeIsNotReplacedUnderAPodThatMustTakeItsStateAlong(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 1)
	w.run("high", "a", "High", 40, 40, 0)
	w.run("equal", "a", "High", 20, 30, 0)
	p := w.planner("a", ladder.SourceMisses, "equal", "high")
	if got := chosen(t, p); got != "ReplaceNode: replacing node a" {
		t.Fatalf("it is %s", got)
	}
	a, _ := going(p, map[string]ladder.Passage{"equal": {Bound: true}}).Choose()
	if a.Kind == rules.ReplaceNode || !strings.Contains(strings.Join(a.Passed, "; "), "pod default/equal: its MigrationPolicy requires its state") {
		t.Errorf("chosen %s %s, passed over %v", a.Kind, a.What, a.Passed)
	}
}
