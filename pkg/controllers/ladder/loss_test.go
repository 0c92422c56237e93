package ladder_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/controllers/ladder"
)

// Two Low containers cost less than a Middle one, here as in the preemption for pending pods.
func TestTwoLowContainersGoBeforeAMiddleOne(t *testing.T) {
	t.Parallel()
	w := newCluster()
	w.node("a", 1)
	w.run("x", "a", "Low", 22, 22, 0)
	w.run("y", "a", "Low", 22, 22, 0)
	w.run("middle", "a", "Middle", 44, 44, 0)
	w.run("high", "a", "High", 40, 44, -1)
	if got := chosen(t, w.planner("a", ladder.SourceNoCore, "high")); got != "Preempt: evicting default/x, default/y" {
		t.Errorf("got %q", got)
	}
}
