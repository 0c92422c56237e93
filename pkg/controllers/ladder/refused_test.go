package ladder_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// unwritable is a node whose agent cannot write the budget of its High container, beside others for which there is room.
func unwritable() *cluster {
	w := contendedCores()
	w.gone("large")
	w.run("equal", "a", "High", 10, 10, 0)
	refused := w.applied("a", "high")
	refused.Error, refused.BudgetUs = "writing cpu.rt_runtime_us: operation not permitted", 0
	return w
}

// pressed is the planner for the container that the detection finds on a node.
func (w *cluster) pressed(t *testing.T, node string) ladder.Planner {
	t.Helper()
	p := w.planner(node, ladder.SourceNoCore)
	var watch ladder.Watch
	for i := range 8 {
		watch, p.Affected = watch.Look(p.Node, false, p.Options, start.Add(time.Duration(i)*2*time.Second))
	}
	if len(p.Affected) != 1 || p.Affected[0].Source != ladder.SourceNoCore {
		t.Fatalf("%d suffer", len(p.Affected))
	}
	return p
}

// No other pod leaves for a container whose agent cannot apply a budget for which there is room: that would help as little as to
// report that there is no core.
func TestAgentErrorMovesNoOtherPod(t *testing.T) {
	t.Parallel()
	w := unwritable()
	p := w.pressed(t, "a")
	if got := p.Affected[0].Detail; got != "its node's agent could not apply its budget: writing cpu.rt_runtime_us: operation not permitted" {
		t.Errorf("it says %q", got)
	}
	if got := chosen(t, p); got != "OpenNode: opening a node for default/high" {
		t.Errorf("no other node: %s", got)
	}
	w.node("b", 2)
	w.run("there", "b", "Low", 30, 30, 0)
	w.run("too", "b", "Low", 30, 30, 1) // no more room than here
	if got := chosen(t, w.pressed(t, "a")); got != "Migrate: moving default/high itself to node b" {
		t.Errorf("another node: %s", got)
	}
	w.pods["high"].OwnerReferences = nil // no controller makes it again
	if got := chosen(t, w.pressed(t, "a")); got != "nothing" {
		t.Errorf("it cannot leave: %s", got)
	}
}

// If its core does not have the room, the pods in its way go.
func TestBudgetRefusedForLackOfRoomMovesOthers(t *testing.T) {
	t.Parallel()
	w := unwritable()
	w.run("more", "a", "Low", 40, 40, 0)
	if got := chosen(t, w.pressed(t, "a")); got != "Preempt: evicting default/more" {
		t.Error(got)
	}
}

// A container that is refused on the next node, too, stays there for a while: it may be at fault itself.
func TestPodRefusedOnNextNodeStays(t *testing.T) {
	t.Parallel()
	w := unwritable()
	w.node("b", 2)
	p := w.pressed(t, "a")
	a, ok := p.Choose()
	if !ok || a.Kind != rules.Migrate || len(a.Leaving) != 1 || len(a.Leaving[0].Left) != 1 || a.Leaving[0].Left[0].Pod != "high" {
		t.Fatalf("%s, and noted %+v", a.What, a.Leaving)
	}
	w.gone("high")
	w.run("replacement", "b", "High", 20, 40, 0)
	w.pods["replacement"].Annotations = map[string]string{"mckube.io/replaces": "high"}
	w.mckubes["replacement"].Annotations = map[string]string{"mckube.io/left-late": `[{"pod":"high","node":"a","at":"` + start.Format(time.RFC3339) + `","times":1}]`}
	refused := w.applied("b", "replacement")
	refused.Error, refused.BudgetUs = "writing cpu.rt_runtime_us: operation not permitted", 0
	a, ok = w.pressed(t, "b").Choose()
	if ok || !strings.Contains(strings.Join(a.Passed, ""), "is refused its budget here, too") {
		t.Errorf("%s; %q", a.What, a.Passed)
	}
}
