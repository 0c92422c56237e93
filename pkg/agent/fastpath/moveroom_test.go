package fastpath_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// expectRoomKept expects that core 0 has promised no more than the plan allows.
func expectRoomKept(t *testing.T, n *node) {
	t.Helper()
	if core := n.Report().Cores[0]; core.PromisedPpm > 900_000 || core.Broken > 0 {
		t.Errorf("%+v; want at most 900000 ppm promised", core)
	}
}

// takeLong has time pass on core 0, more than all its deadlines.
func (n *node) takeLong() {
	n.t.Helper()
	for range 2 {
		n.now.Add(50_000_000)
		n.wake(0)
	}
}

// A move that is tried again may take long: the kernel is waited for. Who is cut for it keeps its room until it has moved.
func TestTheRoomOfWhoseMoveIsTriedAgainIsKept(t *testing.T) {
	k := newKernel("/a", "/c", "/d")
	n := start(t, k, t.TempDir())
	a, c, d := high("a", "/a", 0), high("c", "/c", 1), high("d", "/d", 0)
	a.Mode = table.Reserved
	n.apply(tableOf(1, a))
	n.now.Add(1_000_000_000)
	g := k.groups["/a"]
	k.change(func() { g.moveErr = actuator.ErrBusy })
	a.Core = 1
	n.apply(tableOf(2, a))
	d.LowUs, d.LeastUs, d.HighUs = 7_900, 7_900, 7_900
	c.LowUs, c.LeastUs, c.HighUs = 6_000, 6_000, 6_000
	n.apply(tableOf(3, a, d))
	cut := int64(-1)
	g.moving = func() { cut = g.budgetUs; n.takeLong() }
	n.apply(tableOf(4, a, c, d))
	if cut != 2_000 {
		t.Errorf("it was to move with %d us; want 2000", cut)
	}
	expectRoomKept(t, n)
	n.takeLong()
	expectRoomKept(t, n)
}

// A server that is to move keeps its room while others are opened, which may take long, and gives it away once it has moved.
func TestTheRoomOfWhoIsToMoveIsKept(t *testing.T) {
	k := newKernel("/a", "/b", "/d")
	n := start(t, k, t.TempDir())
	a, b, d := high("a", "/a", 1), high("b", "/b", 0), high("d", "/d", 0)
	d.LowUs, d.LeastUs, d.HighUs = 3_000, 3_000, 7_900
	n.apply(tableOf(1, b, d))
	n.now.Add(1_000_000_000)
	g := k.groups["/b"]
	k.change(func() { g.moveErr = actuator.ErrBusy })
	k.opening = func(actuator.Server) { n.takeLong() }
	b.Core = 1
	d.LowUs, d.LeastUs = 7_900, 7_900 // it is to have b's room
	n.apply(tableOf(2, a, b, d))
	expectRoomKept(t, n)
	if got := n.reported("b"); got.BudgetUs != 2_000 || got.LevelUs != 2_000 {
		t.Errorf("who could not move: %+v; want its 2000 us", got)
	}
	k.change(func() { g.moveErr = nil })
	n.apply(tableOf(3, a, b, d))
	n.takeLong()
	expectRoomKept(t, n)
	if got := n.reported("d").BudgetUs; got != 7_900 {
		t.Errorf("who is to have its room has %d us; want 7900", got)
	}
}

// An event of who moves comes too late: it is raised neither behind the cut nor where it was.
func TestWhoMovesIsNotRaisedMeanwhile(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	a := high("a", "/a", 0)
	n.apply(tableOf(1, a))
	n.now.Add(1_000_000_000)
	alarm := n.programs.event(100, ebpf.KindAlarm, n.now.Load())
	k.groups["/a"].moving = func() { n.send(0, alarm) }
	before := tableOf(2, a).Plans[0].Raise
	a.Core = 1
	next := tableOf(2, a)
	next.Plans[0].Raise = before // a plan that lags
	n.apply(next)
	if got := n.reported("a"); got.BudgetUs != 2_000 || got.Error != "" {
		t.Errorf("%+v; want 2000 us", got)
	}
}
