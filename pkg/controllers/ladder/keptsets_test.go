package ladder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/pdb"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// four is a node with one core on which two of four pods have to go for a container without a core: a1 and b1 cost less than c1
// and d1.
func four() *cluster {
	w := newCluster()
	w.node("a", 1)
	for name, ms := range map[string]int64{"a1": 20, "b1": 20, "c1": 21, "d1": 21} {
		w.run(name, "a", "Low", ms, ms, 0)
	}
	w.run("high", "a", "High", 30, 45, -1)
	w.pods["high"].OwnerReferences = nil
	return w
}

// The cheapest pods that budgets let go together are evicted at once. Of moved pods the budgets must let each go after the
// other.
func TestSetHasPodsThatBudgetsLetGo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*cluster)
		want   string
	}{
		"no budget":            {func(*cluster) {}, "Preempt: evicting default/a1, default/b1"},
		"none of two may go":   {func(w *cluster) { w.budget("x", 0, "a1", "b1") }, "Preempt: evicting default/c1, default/d1"},
		"one of two may go":    {func(w *cluster) { w.budget("x", 1, "a1", "b1") }, "Preempt: evicting default/a1, default/c1"},
		"each of two budgets":  {func(w *cluster) { w.budget("x", 1, "a1", "c1"); w.budget("y", 1, "b1", "d1") }, "Preempt: evicting default/a1, default/b1"},
		"several over one":     {func(w *cluster) { w.budget("x", 1, "a1"); w.budget("y", 1, "a1", "c1") }, "Preempt: evicting default/b1, default/c1"},
		"one of three may go":  {func(w *cluster) { w.budget("x", 1, "a1", "b1", "c1") }, "Preempt: evicting default/a1, default/d1"},
		"none: it is waited":   {func(w *cluster) { w.budget("x", 0, "a1", "b1", "c1", "d1") }, "Preempt: evicting default/a1, default/b1"},
		"they move":            {func(w *cluster) { w.node("b", 1) }, "Migrate: moving default/a1 to node b"},
		"one after the other":  {func(w *cluster) { w.node("b", 1); w.budget("x", 1, "a1", "b1") }, "Migrate: moving default/a1 to node b"},
		"one of them may not":  {func(w *cluster) { w.node("b", 1); w.budget("x", 0, "a1") }, "Migrate: moving default/b1 to node b"},
		"none moves: it waits": {func(w *cluster) { w.node("b", 1); w.budget("x", 0, "a1", "b1", "c1") }, "Migrate: moving default/a1 to node b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := four()
			c.change(w)
			if got := chosen(t, w.planner("a", ladder.SourceNoCore, "high")); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Of pods that go one after the other, the pod that a budget blocks goes first, so that no pod goes in vain. If two budgets
// block two pods the action does not begin.
func TestNoPodMovesInVain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*cluster)
		answer []*v1alpha1.RTAction
		want   string
		vain   bool
	}{
		"all may":                {func(*cluster) {}, nil, "Migrate: moving default/one to node b", false},
		"the second may not yet": {func(w *cluster) { w.budget("x", 0, "two") }, nil, "Migrate: moving default/two to node b", false},
		"the second may not": {func(w *cluster) { w.budget("x", 0, "two") }, []*v1alpha1.RTAction{expired(rules.Migrate)},
			"Migrate: moving default/two to node b", true},
		"neither may yet":      {func(w *cluster) { w.budget("x", 0, "one", "two") }, nil, "Migrate: moving default/one to node b", false},
		"two budgets, not yet": {func(w *cluster) { w.budget("x", 0, "one"); w.budget("y", 0, "two") }, nil, "Preempt: evicting default/one, default/two", false},
		"two budgets": {func(w *cluster) { w.budget("x", 0, "one"); w.budget("y", 0, "two") }, []*v1alpha1.RTAction{expired(rules.Preempt)},
			"Preempt: evicting default/one, default/two", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCluster()
			w.node("a", 1)
			w.node("b", 1)
			w.run("one", "a", "Low", 32, 32, 0)
			w.run("two", "a", "Low", 33, 33, 0)
			w.run("high", "a", "High", 60, 80, -1)
			w.pods["high"].OwnerReferences = nil
			c.change(w)
			p := w.planner("a", ladder.SourceNoCore, "high")
			p.Answers = c.answer
			if got, a := chosen(t, p), must(p); got != c.want || a.Vain != c.vain {
				t.Errorf("got %q, vain %t, want %q, vain %t", got, a.Vain, c.want, c.vain)
			}
		})
	}
}

func must(p ladder.Planner) ladder.Answer {
	a, _ := p.Choose() // the caller has checked which one it is
	return a
}

// The API server evicts no pod that several budgets cover, whatever they allow. The controller does not wait for that, but
// reports it. If the replacement serves first no pod is evicted.
func TestPodsCoveredBySeveralBudgets(t *testing.T) {
	t.Parallel()
	said := "these must stay: pod default/large: PodDisruptionBudgets x, y cover it, and the API server evicts no pod that several cover, pod default/small"
	for name, c := range map[string]struct {
		beside bool
		nodes  []string
		want   string
	}{
		"no other node":               {false, nil, "OpenNode: opening a node for default/high"},
		"another node":                {false, []string{"b"}, "Migrate: moving default/high itself to node b"},
		"others serve before they go": {true, []string{"b"}, "Migrate: moving default/large to node b"},
	} {
		w := contendedCores()
		for _, name := range c.nodes {
			w.node(name, 1)
		}
		w.budget("x", 1, "small", "large")
		w.budget("y", 1, "small", "large")
		p := w.planner("a", ladder.SourceOverruns, "high")
		p.Passage = func(*state.PodView, string) ladder.Passage { return ladder.Passage{Beside: c.beside} }
		if got := chosen(t, p); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		p.Ticket = func(orchestration.Request) (orchestration.Ticket, bool) {
			return orchestration.Ticket{Phase: rules.Refused}, true
		}
		a, ok := p.Choose()
		passed := strings.Join(a.Passed, "; ")
		if ok || !strings.Contains(passed, "Preempt: no less critical pod is in the way ("+said) {
			t.Errorf("%s: got %q, and it says %q", name, a.What, passed)
		}
		if !strings.Contains(passed, "or pods of it must stay ("+said[:40]) {
			t.Errorf("%s: it is not said why the node stays: %q", name, passed)
		}
	}
}

// The same holds from the first look on: the controller never submits an action that waits for two budgets.
func TestNoActionWaitsForTwoBudgets(t *testing.T) {
	s := newStage(t)
	s.beside(3)
	s.budget("one", 1)
	s.budget("two", 1)
	s.conduct[rules.OpenNode] = rules.Result{Message: "it takes its time"}
	p := s.spawn()
	for began := s.clock.Now(); len(s.actions()) == 0 && s.clock.Now().Sub(began) < time.Minute; s.clock.Step(2 * time.Second) {
		s.live()
		p.turn()
	}
	if got := s.actions(); len(got) != 1 || !strings.HasPrefix(got[0], string(rules.OpenNode)) {
		t.Errorf("asked for is %q, want one node, opened for pods that go once others serve", got)
	}
}

// The controller opens no node for a pod that a budget blocks, not even when nothing else is left: the executor that opens it
// asks no budget.
func TestNoNodeIsOpenedForPodBlockedByBudget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		allowed int32
		beside  bool
		want    string
	}{
		"kept": {0, false, "nothing"}, "let go": {1, false, "OpenNode: opening a node for default/large"},
		"kept, and another serves first": {0, true, "OpenNode: opening a node for default/large"},
	} {
		w := contendedCores()
		w.mckubes["high"].Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
		for _, name := range []string{"small", "large"} { // only moving them helps
			w.pods[name].Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
		w.budget("x", c.allowed, "small", "large")
		p := w.planner("a", ladder.SourceOverruns, "high")
		p.Passage = func(*state.PodView, string) ladder.Passage { return ladder.Passage{Beside: c.beside} }
		for _, p.Answers = range [][]*v1alpha1.RTAction{nil, {expired(rules.Preempt)}} {
			if got := chosen(t, p); got != c.want {
				t.Errorf("%s, %d expired: got %q, want %q", name, len(p.Answers), got, c.want)
			}
		}
		p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
			return orchestration.Ticket{Name: "x", Phase: rules.RolledBack, Again: p.Now}, r.Kind == rules.OpenNode
		}
		if got := chosen(t, p); got != c.want {
			t.Errorf("%s, after it came to nothing: got %q, want %q", name, got, c.want)
		}
	}
}

// No pod is moved again, with the node as the last resort, before the controller has waited for budgets as often as for actions
// in backoff.
func TestLastResortComesAfterBudgets(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 2)
	w.node("b", 2)
	w.run("one", "a", "High", 20, 40, 0)
	w.run("two", "a", "Middle", 20, 40, 1)
	w.budget("x", 0, "one")
	p := w.planner("a", ladder.SourceMisses, "one", "two")
	p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
		return orchestration.Ticket{Name: "x", Phase: rules.Failed}, r.Kind == rules.Rearrange
	}
	moved := &v1alpha1.RTAction{
		Spec:   v1alpha1.RTActionSpec{Kind: "Rearrange", Moves: []v1alpha1.ActionMove{{PodUID: "two", Container: "app", Core: 0}}},
		Status: v1alpha1.RTActionStatus{Phase: "Succeeded"},
	}
	for times, want := range []string{"Migrate", "Migrate", "Migrate", "ReplaceNode"} {
		p.Answers = []*v1alpha1.RTAction{moved}
		for range times {
			p.Answers = append(p.Answers, expired(rules.Migrate))
		}
		if a := must(p); string(a.Kind) != want || a.Vain != (times == 1 || times == 2) {
			t.Errorf("after %d waits: got %s %q, vain %t, want %s", times, a.Kind, a.What, a.Vain, want)
		}
	}
}

// The planner finds a pod that may go behind any number of pods that a budget blocks.
func TestAllowedPodIsFoundBehindManyBlockedOnes(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 1)
	var kept []string
	for i := range 36 {
		kept = append(kept, fmt.Sprintf("kept-%02d", i))
		w.run(kept[i], "a", "Low", 2, 2, 0)
	}
	w.run("free", "a", "Low", 1, 1, 0)
	w.run("high", "a", "High", 5, 5, 0)
	w.pods["high"].OwnerReferences = nil
	w.budget("x", 0, kept...)
	p := w.planner("a", ladder.SourceOverruns, "high")
	for _, p.Answers = range [][]*v1alpha1.RTAction{nil, {expired(rules.Preempt)}} {
		if got, a := chosen(t, p), must(p); got != "Preempt: evicting default/free" || a.Vain {
			t.Errorf("%d expired: got %q, vain %t", len(p.Answers), got, a.Vain)
		}
	}
}

// For any budgets: a choice that is not in vain is allowed, and a choice in vain must wait for its budget. Nothing is in vain
// while the departure of pods that budgets let go together could make room on a core.
func TestAnyChoiceUnderBudgets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w, p := someCluster(t)
		for i := range rapid.IntRange(1, 3).Draw(t, "budgets") {
			covers := slices.DeleteFunc(namesOf(w), func(string) bool { return rapid.Bool().Draw(t, "covers") })
			w.budget(fmt.Sprint("b", i), rapid.Int32Range(0, 2).Draw(t, "allowed"), covers...)
		}
		p.Leave = pdb.NewIndex(w.budgets).Leave(w.list()...)
		p.Answers = []*v1alpha1.RTAction{expired(rules.Preempt)}
		a, ok := p.Choose()
		free := (!ok || a.Vain) && p.Affected[0].Physical == rt.NoCore && clearable(w, p)
		switch {
		case free:
			t.Fatalf("got %q, vain %t, though some may go together", a.What, a.Vain)
		case !ok || a.Kind == rules.Rearrange || a.Kind == rules.ReplaceNode:
		case a.Vain && (a.Kind == rules.OpenNode || !w.overdrawn(a.Pods)):
			t.Fatalf("%s is in vain, and waits for nothing", a.What)
		case !a.Vain && (a.Kind == rules.Preempt && w.overdrawn(a.Pods) || slices.ContainsFunc(a.Pods, w.alone)):
			t.Fatalf("%s, though a budget keeps one", a.What)
		}
	})
}

func (w *cluster) list(names ...types.UID) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range w.pods {
		if len(names) == 0 || slices.Contains(names, p.UID) {
			out = append(out, p)
		}
	}
	return out
}

// overdrawn tells by the package that judges budgets whether the pods may not go together.
func (w *cluster) overdrawn(pods []types.UID) bool {
	list := w.list(pods...)
	return slices.ContainsFunc(w.budgets, func(b policyv1.PodDisruptionBudget) bool { return len(pdb.Overdrawn(&b, list)) > 0 }) ||
		slices.ContainsFunc(list, func(pod *corev1.Pod) bool { return len(pdb.Covering(w.budgets, pod)) > 1 })
}

// alone tells whether not even one pod may go.
func (w *cluster) alone(pod types.UID) bool { return w.overdrawn([]types.UID{pod}) }

// clearable tells whether the affected container has room on some core without some of the less critical containers there that
// budgets let go together. It tries each set.
func clearable(w *cluster, p ladder.Planner) bool {
	s := p.Affected[0]
	for _, c := range p.Node.Cores {
		var lesser []rt.Server
		servers := p.Node.Runs(&c).Servers
		for _, o := range servers {
			if o.Criticality < s.Criticality {
				lesser = append(lesser, o)
			}
		}
		for mask := range 1 << len(lesser) {
			var gone []types.UID
			rest := slices.DeleteFunc(slices.Clone(servers), func(o rt.Server) bool {
				at := slices.IndexFunc(lesser, func(l rt.Server) bool { return l.ID == o.ID })
				leaves := at >= 0 && mask&(1<<at) != 0
				if leaves {
					pod, _, _ := strings.Cut(o.ID, "/")
					gone = append(gone, types.UID(pod))
				}
				return leaves
			})
			if mask > 0 && rt.Admit(c.Core, rest, s.Wanted).Admitted && !w.overdrawn(gone) {
				return true
			}
		}
	}
	return false
}
