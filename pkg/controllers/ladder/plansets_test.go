package ladder_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
	"github.com/mainspring-rt/mainspring/pkg/state"
)

// Two pods are in the way of a container that lacks room. If another node has room for only one of them, none goes there in
// vain.
func TestASetIsMovedWhereItFitsTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		others int64 // on the only core of the other node
		want   string
	}{
		{10, "Migrate: moving default/one to node b"},
		{50, "Preempt: evicting default/one, default/two"},
	} {
		w := newCluster()
		w.node("a", 1)
		w.node("b", 1)
		w.run("one", "a", "Low", 32, 32, 0)
		w.run("two", "a", "Low", 33, 33, 0)
		w.run("high", "a", "High", 60, 80, -1)
		w.pods["high"].OwnerReferences = nil
		w.run("full", "b", "High", c.others, c.others, 0)
		if got := chosen(t, w.planner("a", ladder.SourceNoCore, "high")); got != c.want {
			t.Errorf("with %d %% in use: %q, want %q", c.others, got, c.want)
		}
	}
}

// The same holds for other resources: a node that has them for each of the two, and not for both, is of no use.
func TestASetIsMovedWhereAllOfItHasWhatItAsksFor(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]string{1: "Preempt: evicting default/one, default/two", 2: "Migrate: moving default/one to node b"} {
		w := newCluster()
		w.node("a", 1)
		w.node("b", 1)
		w.run("one", "a", "Low", 32, 32, 0)
		w.run("two", "a", "Low", 33, 33, 0)
		w.run("high", "a", "High", 60, 80, -1)
		w.pods["high"].OwnerReferences = nil
		p := w.planner("a", ladder.SourceNoCore, "high")
		p.Fits = func(_ string, pods ...*state.PodView) bool { return len(pods) <= most }
		if got := chosen(t, p); got != want {
			t.Errorf("with room for %d: %q, want %q", most, got, want)
		}
	}
}

// The planner looks only at sets that make room and whose pods all may go. A cheaper set with a pod that must stay does not
// block these.
func TestSetHasOnlyPodsThatMayGo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*cluster)
		want   string
	}{
		"all may be evicted": {func(*cluster) {}, "Preempt: evicting default/x, default/z"},
		"one would be made again on the node": {func(w *cluster) {
			w.pods["x"].Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, "Preempt: evicting default/y, default/z"},
		"all may move": {func(w *cluster) { w.node("b", 1) }, "Migrate: moving default/x to node b"},
		"one must stay": {func(w *cluster) {
			w.node("b", 1)
			w.mckubes["x"].Spec.Migration = &mcv1.Migration{Policy: mcv1.MigrationNever}
		}, "Migrate: moving default/y to node b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCluster()
			w.node("a", 1)
			w.run("x", "a", "Low", 8, 8, 0)
			w.run("y", "a", "Low", 9, 9, 0)
			w.run("z", "a", "Low", 40, 40, 0)
			w.run("high", "a", "High", 60, 80, -1)
			w.pods["high"].OwnerReferences = nil
			c.change(w)
			if got := chosen(t, w.planner("a", ladder.SourceNoCore, "high")); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The action waits for pods that end slowly, for each of several: it must not end between two of them.
func TestEachOfSeveralIsGivenItsGrace(t *testing.T) {
	t.Parallel()
	for grace, want := range map[time.Duration]time.Duration{
		30 * time.Second: 3 * time.Minute, 5 * time.Minute: 7*time.Minute + 30*time.Second, time.Hour: 12*time.Minute + 30*time.Second, 0: 3 * time.Minute,
	} {
		w := newCluster()
		w.node("a", 1)
		w.run("one", "a", "Low", 32, 32, 0).Spec.TerminationGracePeriodSeconds = ptr.To(int64(grace.Seconds()))
		w.run("two", "a", "Low", 33, 33, 0)
		w.run("high", "a", "High", 60, 80, -1)
		a, ok := w.planner("a", ladder.SourceNoCore, "high").Choose()
		if !ok || a.Kind != "Preempt" || len(a.Pods) != 2 || a.Request.Timeout != want {
			t.Errorf("with %s: %s, within %s, want %s", grace, a.What, a.Request.Timeout, want)
		}
	}
}

// A node may be opened in any NodePool that takes the pods: the executor knows which are the cheapest.
func TestANodeIsOpenedInAnyNodePool(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.gone("small", "large")
	w.run("equal", "a", "High", 20, 30, 0)
	a, ok := w.planner("a", ladder.SourceOverruns, "high").Choose()
	if !ok || a.Kind != "OpenNode" || a.Request.NodePool != "" {
		t.Errorf("%s in NodePool %q, want any", a.What, a.Request.NodePool)
	}
}

// A preemption failed, or succeeded because there was room before all pods had gone: some were evicted and are gone. A pod that
// still exists was not moved, and may be now.
func TestPodNotEvictedMayBeEvictedLater(t *testing.T) {
	t.Parallel()
	w := contendedCores()
	w.gone("small")
	p := w.planner("a", ladder.SourceOverruns, "high")
	p.Answers = []*v1alpha1.RTAction{{
		Spec: v1alpha1.RTActionSpec{Kind: "Preempt", Pods: []v1alpha1.ActionPod{{UID: "small"}, {UID: "large"}}},
	}}
	for _, phase := range []v1alpha1.ActionPhase{"Failed", "Succeeded"} {
		p.Answers[0].Status.Phase = phase
		if got := chosen(t, p); got != "Preempt: evicting default/large" {
			t.Errorf("it has %s: got %q", phase, got)
		}
	}
	p.Answers[0].Spec.Kind = "Migrate"
	if got := chosen(t, p); got == "Preempt: evicting default/large" {
		t.Errorf("got %q: it may have been moved", got)
	}
}

// The controller reports why a node accepts no pods now, such as a node that was opened.
func TestClosedNodesAreReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*cluster)
		want   string
	}{
		"its agent was not heard of": {func(w *cluster) { w.rtNodes["b"].Status.Conditions = nil }, "elsewhere (these take nobody now: b: the node's agent has not been heard of)"},
		"it is not ready":            {func(w *cluster) { w.nodes["b"].Status.Conditions = nil }, "elsewhere (these take nobody now: b: the node is not ready)"},
		"it does not suit":           {func(w *cluster) { w.node("b", 0) }, "elsewhere; "},
		"many": {func(w *cluster) {
			for _, name := range []string{"b", "c", "d", "e", "f"} {
				w.node(name, 1).Spec.Unschedulable = true
			}
		}, "(these take nobody now: b: the node is cordoned, c: the node is cordoned, d: the node is cordoned, and others)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := contendedCores()
			w.node("b", 1)
			c.change(w)
			p := w.planner("a", ladder.SourceOverruns, "high")
			p.Ticket = func(r orchestration.Request) (orchestration.Ticket, bool) {
				return orchestration.Ticket{Name: "x", Phase: rules.Succeeded}, r.Kind == rules.OpenNode || r.Kind == rules.Preempt || r.Kind == rules.ReplaceNode
			}
			a, ok := p.Choose()
			if said := strings.Join(a.Passed, "; "); ok || !strings.Contains(said, c.want) {
				t.Errorf("got %q, and it says %q", a.What, said)
			}
		})
	}
}
