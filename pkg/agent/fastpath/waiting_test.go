package fastpath_test

import (
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
)

// A server that comes just after the process before has died waits until nothing that this may have promised is under
// way. The fast path does not report such a server as governed while its budget is 0.
func TestWhoWaitsForRoomIsNotCalledGoverned(t *testing.T) {
	dir, k := t.TempDir(), newKernel("/a", "/b")
	first := start(t, k, dir)
	first.apply(tableOf(1, high("a", "/a", 0)))
	first.end()
	second := start(t, k, dir)
	second.apply(tableOf(2, high("a", "/a", 0), high("b", "/b", 0)))
	if b := second.reported("b"); b.BudgetUs != 0 || !b.Waiting || !strings.Contains(b.Error, "budget is 0 us, less than low, 2000 us") {
		t.Errorf("right after the restart: %+v", b)
	}
	if a := second.reported("a"); a.BudgetUs != 2_000 || a.Waiting || a.Error != "" {
		t.Errorf("who was governed before: %+v", a)
	}
	second.now.Add(11_000_000)
	second.wake(0)
	if b := second.reported("b"); b.BudgetUs != 2_000 || b.Waiting || b.Error != "" {
		t.Errorf("a period later: %+v", b)
	}
}

// A budget that the kernel refused at first is no fault any more when it is in force.
func TestARefusedBudgetThatCameIsNoFault(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	k.change(func() { k.groups["/a"].setErr = actuator.ErrNoRoom })
	n.apply(tableOf(1, high("a", "/a", 0)))
	if a := n.reported("a"); a.Waiting || !strings.Contains(a.Error, "setting a budget of 2000 us") {
		t.Errorf("while it is refused: %+v", a)
	}
	k.change(func() { k.groups["/a"].setErr = nil })
	n.now.Add(2_000_000_000)
	n.wake(0)
	if a := n.reported("a"); a.BudgetUs != 2_000 || a.Error != "" {
		t.Errorf("when it is in force: %+v", a)
	}
}
