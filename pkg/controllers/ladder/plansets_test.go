package ladder_test

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
)

// Two are in the way of a container that lacks room. Where another node has room for only one of them, none is sent there for nothing.
func TestASetIsMovedWhereItFitsTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		others int64 // on the only core of the other node
		want   string
	}{
		{10, "Migrate: moving default/one to node b"},
		{50, "Preempt: evicting default/one, default/two"},
	} {
		w := newTown()
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

// Who takes long to end is waited for, each of several: the action must not end between two of them.
func TestEachOfSeveralIsGivenItsGrace(t *testing.T) {
	t.Parallel()
	for grace, want := range map[time.Duration]time.Duration{
		30 * time.Second: 3 * time.Minute, 5 * time.Minute: 7*time.Minute + 30*time.Second, time.Hour: 12*time.Minute + 30*time.Second, 0: 3 * time.Minute,
	} {
		w := newTown()
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

// A node may be opened in any NodePool that takes the pods: the one that opens it knows which are the cheapest.
func TestANodeIsOpenedInAnyNodePool(t *testing.T) {
	t.Parallel()
	w := crowded()
	w.gone("small", "large")
	w.run("equal", "a", "High", 20, 30, 0)
	a, ok := w.planner("a", ladder.SourceOverruns, "high").Choose()
	if !ok || a.Kind != "OpenNode" || a.Request.NodePool != "" {
		t.Errorf("%s in NodePool %q, want any", a.What, a.Request.NodePool)
	}
}
