package ladder_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// contendedCores is a node whose first core has a High container between Low ones of 10 and 30 %, and whose second core is full.
func contendedCores() *cluster {
	w := newCluster()
	w.node("a", 2)
	w.run("high", "a", "High", 20, 40, 0)
	w.run("small", "a", "Low", 10, 10, 0)
	w.run("large", "a", "Low", 30, 30, 0)
	w.run("other", "a", "High", 85, 85, 1)
	return w
}

func TestCheapestLevelThatHelps(t *testing.T) {
	t.Parallel()
	pinned := func(w *cluster, names ...string) {
		for _, name := range names {
			w.mckubes[name].Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
		}
	}
	tolerant := func(w *cluster, name string) {
		w.pods[name].Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	for name, c := range map[string]struct {
		change func(*cluster)
		source string
		want   string
	}{
		"a core of the node has room for it": {func(w *cluster) { w.cores["a"] = 3 }, ladder.SourceOverruns,
			"Rearrange: moving container app of pod default/large to core 2"},
		"only the small one fits elsewhere on the node": {func(w *cluster) {
			w.gone("other")
			w.run("other", "a", "High", 65, 65, 1)
		}, ladder.SourceOverruns, "Rearrange: moving container app of pod default/small to core 1"},
		"the one that fits would crowd the other core as much": {func(w *cluster) {
			w.gone("other")
			w.run("other", "a", "High", 75, 75, 1)
		}, ladder.SourceOverruns, "Preempt: evicting default/large"},
		"the core with the most room": {func(w *cluster) {
			w.cores["a"] = 4
			w.run("fill", "a", "Low", 20, 20, 2)
		}, ladder.SourceOverruns, "Rearrange: moving container app of pod default/large to core 3"},
		"the largest Low one finds a core elsewhere": {func(w *cluster) { w.node("b", 1) }, ladder.SourceOverruns, "Migrate: moving default/large to node b"},
		"it must stay": {func(w *cluster) { w.node("b", 1); pinned(w, "large") }, ladder.SourceOverruns, "Migrate: moving default/small to node b"},
		"no owner makes it again": {func(w *cluster) { w.node("b", 1); w.pods["large"].OwnerReferences = nil }, ladder.SourceOverruns,
			"Migrate: moving default/small to node b"},
		"both must stay, so the High one moves itself": {func(w *cluster) { w.node("b", 1); pinned(w, "large", "small") }, ladder.SourceOverruns,
			"Migrate: moving default/high itself to node b"},
		"the other node would be as crowded with the large one": {func(w *cluster) {
			w.node("b", 1)
			w.run("crowd", "b", "High", 55, 55, 0)
		}, ladder.SourceOverruns, "Migrate: moving default/small to node b"},
		"the other node is under pressure as well": {func(w *cluster) {
			w.node("b", 1).Spec.Taints = []corev1.Taint{{Key: mcv1.TaintPressure, Effect: corev1.TaintEffectNoSchedule}}
		}, ladder.SourceOverruns, "Preempt: evicting default/large"},
		"no other node": {func(*cluster) {}, ladder.SourceOverruns, "Preempt: evicting default/large"},
		"the large one would be made again on the node that is tainted": {func(w *cluster) { tolerant(w, "large") }, ladder.SourceOverruns,
			"Preempt: evicting default/small"},
		"it is of a DaemonSet": {func(w *cluster) {
			tolerant(w, "large")
			w.pods["large"].OwnerReferences[0].Kind = "DaemonSet"
		}, ladder.SourceOverruns, "Preempt: evicting default/small"},
		"no owner makes it again, and it tolerates the taint": {func(w *cluster) {
			tolerant(w, "large")
			w.pods["large"].OwnerReferences = nil
		}, ladder.SourceOverruns, "Preempt: evicting default/large"},
		"only as critical ones": {func(w *cluster) {
			w.gone("small", "large")
			w.run("equal", "a", "High", 20, 30, 0)
		}, ladder.SourceOverruns, "OpenNode: opening a node for default/equal"},
		"as critical ones that must stay": {func(w *cluster) {
			w.gone("small", "large")
			w.run("equal", "a", "High", 20, 30, 0)
			pinned(w, "equal")
		}, ladder.SourceOverruns, "OpenNode: opening a node for default/high"},
		"the other node would be as crowded with any of them": {func(w *cluster) {
			w.gone("small", "large")
			w.run("equal", "a", "High", 20, 30, 0)
			w.node("b", 1)
			w.run("crowd", "b", "High", 45, 45, 0)
		}, ladder.SourceOverruns, "OpenNode: opening a node for default/equal"},
		"alone on its core": {func(w *cluster) { w.gone("small", "large") }, ladder.SourceOverruns, "nothing"},
		"alone on its core with all the room there is": {func(w *cluster) {
			w.gone("small", "large")
			w.gone("other")
		}, ladder.SourceOverruns, "nothing"},
		"alone on a core that is promised in part": {func(w *cluster) {
			w.gone("small", "large", "other")
			w.capacity = 700_000
		}, ladder.SourceOverruns, "nothing"},
		"late, alone on its core": {func(w *cluster) {
			w.gone("small", "large")
			w.gone("other")
			w.node("b", 1)
		}, ladder.SourceMisses, "Migrate: moving default/high itself to node b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := contendedCores()
			c.change(w)
			if got := chosen(t, w.planner("a", c.source, "high")); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// withoutCore is a node that refuses a High container of 55 %: each core has two Low ones in the way.
func withoutCore() *cluster {
	w := newCluster()
	w.node("a", 2)
	for core := range 2 {
		for i, name := range []string{"x", "y"} {
			w.run(name+string(rune('0'+core)), "a", "Low", int64(30+10*i+core), int64(30+10*i+core), core)
		}
	}
	w.run("high", "a", "High", 40, 55, -1)
	return w
}

func TestRoomForAContainerWithoutACore(t *testing.T) {
	t.Parallel()
	w := withoutCore()
	// 55 beside 30 fit into 90: the one of 40 has to go.
	if got := chosen(t, w.planner("a", ladder.SourceNoCore, "high")); got != "Preempt: evicting default/y0" {
		t.Errorf("got %q", got)
	}
	w.node("b", 1)
	if got := chosen(t, w.planner("a", ladder.SourceNoCore, "high")); !strings.HasPrefix(got, "Migrate: ") {
		t.Errorf("got %q", got)
	}
	// With three more on the node the Low ones have somewhere to go, and the core with the smaller ones is cleared.
	w.cores["a"] = 3
	w.run("third", "a", "Middle", 48, 48, 2)
	if got := chosen(t, w.planner("a", ladder.SourceNoCore, "high")); got != "Rearrange: moving container app of pod default/high to core 0, container app of pod default/y0 to core 2" {
		t.Errorf("got %q", got)
	}
	w.gone("third")
	if got := chosen(t, w.planner("a", ladder.SourceNoCore, "high")); got != "Rearrange: moving container app of pod default/high to core 2" {
		t.Errorf("got %q", got)
	}
}

// The planner passes over an action that was tried in vain and is in backoff, and one that was done. The request says why.
func TestActionInBackoffIsPassedOver(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.cores["a"] = 3
	w.node("b", 1)
	p := w.planner("a", ladder.SourceOverruns, "high")
	tried := map[rules.Kind]orchestration.Ticket{}
	p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
		ticket, ok := tried[r.Kind]
		return ticket, ok
	}
	for _, c := range []struct {
		kind  rules.Kind
		phase rules.Phase
		again time.Duration
		want  string
	}{
		{rules.Rearrange, rules.RolledBack, time.Second, "Migrate: moving default/large to node b"},
		{rules.Migrate, rules.Expired, 2 * time.Second, "Preempt: evicting default/large"},
		{rules.Preempt, rules.Refused, 0, "ReplaceNode: replacing node a"},
		{rules.ReplaceNode, rules.Succeeded, 0, "nothing"},
		{rules.Rearrange, rules.RolledBack, -time.Second, "Rearrange: moving container app of pod default/large to core 2"},
	} {
		tried[c.kind] = orchestration.Ticket{Name: "action", Phase: c.phase}
		if c.again != 0 {
			tried[c.kind] = orchestration.Ticket{Name: "action", Phase: c.phase, Again: start.Add(c.again)}
		}
		if got := chosen(t, p); got != c.want {
			t.Errorf("after %s %s: got %q, want %q", c.kind, c.phase, got, c.want)
		}
	}
	delete(tried, rules.Preempt)
	tried[rules.Rearrange] = orchestration.Ticket{Name: "first", Phase: rules.RolledBack, Again: start.Add(time.Minute)}
	a, _ := p.Choose()
	if m := a.Request.Message; !strings.Contains(m, "Rearrange: action first is RolledBack; Migrate: action action is Expired") || !strings.Contains(m, "evicting default/large frees 301000 ppm") {
		t.Errorf("the request says %q", m)
	}
}

// A node is not replaced for a container that is less critical than others that run there.
func TestNoMoreCriticalPodGoesWithTheNode(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	p := w.planner("a", ladder.SourceMisses, "small")
	p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
		return orchestration.Ticket{Name: "x", Phase: rules.Failed}, r.Kind == rules.OpenNode
	}
	if got := chosen(t, p); got != "nothing" {
		t.Errorf("got %q", got)
	}
}

// The planner asks for an action that was tried in vain, or that a PodDisruptionBudget blocks, only if no level has another one,
// however long the backoff has been over.
func TestWhatIsTriedAgainInVain(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.node("b", 1)
	p := w.planner("a", ladder.SourceOverruns, "high")
	untried := map[rules.Kind]bool{rules.ReplaceNode: true}
	p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
		again := time.Minute
		if r.Kind == rules.Migrate {
			again = 0
		}
		return orchestration.Ticket{Name: "action", Phase: rules.Expired, Again: start.Add(again)}, !untried[r.Kind]
	}
	if a, ok := p.Choose(); !ok || a.Kind != rules.ReplaceNode || a.Vain || !strings.Contains(a.Request.Message, "Migrate: action action is Expired") {
		t.Errorf("got %s, vain %t, %q, while a rung is untried", a.Kind, a.Vain, a.Request.Message)
	}
	clear(untried)
	a, ok := p.Choose()
	if !ok || a.Kind != rules.Migrate || !a.Vain {
		t.Errorf("got %s, vain %t, though all was tried", a.Kind, a.Vain)
	}
	if said := strings.Join(a.Passed, "; "); !strings.Contains(said, "ReplaceNode: action action is Expired") || !strings.Contains(said, "Migrate: action action is Expired") {
		t.Errorf("it says %q", said)
	}
	if strings.Contains(a.Request.Message, "ReplaceNode") {
		t.Errorf("the request says %q, and speaks of dearer rungs", a.Request.Message)
	}
}

// The planner touches nothing that was moved for the cause in any way, and nothing that another action has.
func TestNothingIsMovedTwice(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.cores["a"] = 3
	w.node("b", 1)
	p := w.planner("a", ladder.SourceOverruns, "high")
	p.Held = func(uid types.UID) bool { return uid == "small" }
	p.Answers = []*v1alpha1.RTAction{{
		Spec:   v1alpha1.RTActionSpec{Kind: "Rearrange", Moves: []v1alpha1.ActionMove{{PodUID: "large", Container: "app", Core: 0}}},
		Status: v1alpha1.RTActionStatus{Phase: "Succeeded"},
	}}
	if got := chosen(t, p); got != "Rearrange: moving container app of pod default/high to core 2" {
		t.Errorf("got %q", got)
	}
	p.Answers[0].Status.Phase = "RolledBack"
	if got := chosen(t, p); got != "Rearrange: moving container app of pod default/large to core 2" {
		t.Errorf("got %q: what was undone may be moved", got)
	}
}

// A pod that went to another core for the pressure does not leave with the node for it, unless all other attempts have failed.
// Then it leaves as the last resort, which has a cause of its own and says so. Pods that another action has do not leave with
// the node.
func TestMovedPodLeavesWithTheNodeAsLastResort(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 2)
	w.node("b", 2)
	w.run("one", "a", "High", 20, 40, 0)
	w.run("two", "a", "Middle", 20, 40, 1)
	p := w.planner("a", ladder.SourceMisses, "one", "two")
	p.Held = func(uid types.UID) bool { return uid == "two" }
	if got := chosen(t, p); got != "Migrate: moving default/one itself to node b" {
		t.Errorf("another action has a pod: %q", got)
	}
	p.Held = func(types.UID) bool { return false }
	p.Answers = []*v1alpha1.RTAction{{
		Spec:   v1alpha1.RTActionSpec{Kind: "Rearrange", Moves: []v1alpha1.ActionMove{{PodUID: "two", Container: "app", Core: 0}}},
		Status: v1alpha1.RTActionStatus{Phase: "Succeeded"},
	}}
	if got := chosen(t, p); got != "Migrate: moving default/one itself to node b" {
		t.Errorf("while something else helps: %q", got)
	}
	p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
		return orchestration.Ticket{Name: "x", Phase: rules.Failed}, r.Kind != rules.ReplaceNode
	}
	a, ok := p.Choose()
	if !ok || a.Kind != rules.ReplaceNode || a.Request.Cause != p.LastResort() || len(a.Request.Displaces) != 2 {
		t.Fatalf("nothing else helps: %s for %s with %v", a.Kind, a.Request.Cause, a.Request.Displaces)
	}
	if m := a.Request.Message; !strings.Contains(m, "default/two, moved for this pressure before, is moved once more, as the last resort") || !strings.Contains(m, "Migrate: action x is Failed") {
		t.Errorf("it says %q", m)
	}
	for attempt, want := range []string{"nothing", "nothing", "nothing", "ReplaceNode"} {
		p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
			return orchestration.Ticket{Name: "x", Phase: rules.RolledBack, Attempt: int32(attempt), Again: p.Now.Add(time.Second)}, r.Kind != rules.ReplaceNode
		}
		if got := chosen(t, p); !strings.HasPrefix(got, want) {
			t.Errorf("something else may help in a second, and was tried %d times: %q", attempt, got)
		}
	}
	p.Answers = nil
	if a, _ := p.Choose(); a.Request.Cause != p.Cause() {
		t.Errorf("nobody was moved: %s", a.Request.Cause)
	}
}

// A node is replaced only where all of its governed pods may leave, it has a NodePool, and another one would help.
func TestWhenANodeIsReplaced(t *testing.T) {
	t.Parallel()
	tried := func(r orchestration.Request) (orchestration.Ticket, bool) {
		return orchestration.Ticket{Name: "x", Phase: rules.Failed}, r.Kind != rules.ReplaceNode
	}
	for name, c := range map[string]struct {
		change func(*cluster, *ladder.Planner)
		want   string
	}{
		"late":               {func(*cluster, *ladder.Planner) {}, "ReplaceNode: replacing node a"},
		"without a NodePool": {func(_ *cluster, p *ladder.Planner) { p.Pool = "" }, "nothing"},
		"with a pod that must stay": {func(w *cluster, _ *ladder.Planner) {
			w.mckubes["other"].Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
		}, "nothing"},
		"with a pod that nobody makes again": {func(w *cluster, _ *ladder.Planner) { w.pods["other"].OwnerReferences = nil }, "nothing"},
	} {
		w := contendedCores()
		first := w.planner("a", ladder.SourceMisses, "high")
		c.change(w, &first)
		p := w.planner("a", ladder.SourceMisses, "high")
		p.Pool, p.Ticket = first.Pool, tried
		if got := chosen(t, p); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// A node on which all pods are late is itself at fault. The controller replaces it before any pod leaves it one by one.
func TestANodeOnWhichAllAreLate(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 2)
	w.node("b", 2)
	w.run("one", "a", "High", 20, 40, 0)
	w.run("two", "a", "Middle", 20, 40, 1)
	if got := chosen(t, w.planner("a", ladder.SourceMisses, "one", "two")); got != "ReplaceNode: replacing node a" {
		t.Errorf("got %q", got)
	}
	if got := chosen(t, w.planner("a", ladder.SourceMisses, "one")); got != "Migrate: moving default/one itself to node b" {
		t.Errorf("got %q: one alone may be late for itself", got)
	}
	p := w.planner("a", ladder.SourceMisses, "one", "two")
	p.Pool = ""
	if got := chosen(t, p); got != "Migrate: moving default/one itself to node b" {
		t.Errorf("got %q: nobody can replace it", got)
	}
}

// The calm doubles with each relapse, also when the pressure comes again soon after its end. The stored condition counts the
// relapses, so that each may be seen by another process.
func TestRelapses(t *testing.T) {
	t.Parallel()
	n, now := &state.NodeView{RTNode: &v1alpha1.RTNode{}}, start
	enter := func(stage string, after time.Duration) int {
		now = now.Add(after)
		n.RTNode.Status.Conditions = []metav1.Condition{ladder.EpisodeOf(n).In(stage, "late: very", now, ladder.Defaults()).Condition()}
		e := ladder.EpisodeOf(n)
		if e.Message != "late: very" {
			t.Errorf("in stage %s the message has become %q", stage, e.Message)
		}
		return e.Relapses
	}
	for i, c := range []struct {
		stage string
		after time.Duration
		want  int
	}{
		{ladder.SourceOverruns, time.Second, 0}, {ladder.StageEased, time.Second, 0}, {ladder.SourceOverruns, time.Second, 1},
		{ladder.StageEased, time.Second, 1}, {ladder.StageRecovering, time.Minute, 1}, {ladder.SourceMisses, time.Second, 2},
		{ladder.StageEased, time.Second, 2}, {ladder.StageEnded, time.Minute, 2}, {ladder.SourceOverruns, 10 * time.Minute, 3},
		{ladder.StageEnded, time.Minute, 3}, {ladder.SourceOverruns, 33 * time.Minute, 0},
	} {
		if got := enter(c.stage, c.after); got != c.want {
			t.Errorf("step %d, %s: %d relapses, want %d", i, c.stage, got, c.want)
		}
	}
}

// A node without enough resources other than cores is no destination.
func TestDestinationsHaveWhatElseThePodAsks(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.node("b", 1)
	p := w.planner("a", ladder.SourceOverruns, "high")
	p.Fits = func(_ string, pods ...*state.PodView) bool { return pods[0].Name != "large" }
	if got := chosen(t, p); got != "Migrate: moving default/small to node b" {
		t.Errorf("got %q", got)
	}
}
