package fastpath_test

import (
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// raisedOnCore0 is a node with one server that is raised on core 0, and one of 0.6 on core 1.
func raisedOnCore0(t *testing.T, k *kernel, mode string) (n *node, a, c table.Server) {
	t.Helper()
	n = start(t, k, t.TempDir())
	a, c = high("a", "/a", 0), high("c", "/c", 1)
	a.Mode = mode
	c.LowUs, c.LeastUs, c.HighUs = 6_000, 6_000, 6_000
	n.apply(tableOf(1, a, c))
	n.now.Add(1_000_000_000) // since the start, of which nothing is promised any more
	n.send(0, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
	if got := n.reported("a").LevelUs; got != 4_000 {
		t.Fatalf("level %d us; want it raised", got)
	}
	a.Core = 1
	return n, a, c
}

// A raised server that goes to another core is cut first: the room for its raise is on the core that it leaves.
func TestARaisedServerIsCutBeforeItMoves(t *testing.T) {
	for _, mode := range []string{table.Elastic, table.Reserved} {
		t.Run(mode, func(t *testing.T) {
			k := newKernel("/a", "/c")
			n, a, c := raisedOnCore0(t, k, mode)
			moved := int64(-1)
			k.groups["/a"].moving = func() { moved = k.groups["/a"].budgetUs }
			n.apply(tableOf(2, a, c))
			if moved != 2_000 || k.groups["/a"].core != 1 {
				t.Errorf("it moved with %d us to core %d; want its low budget, core 1", moved, k.groups["/a"].core)
			}
			if core := n.Report().Cores[1]; core.PromisedPpm > 900_000 || core.Broken != 0 {
				t.Errorf("%d ppm are promised of 900000, broken %d times", core.PromisedPpm, core.Broken)
			}
		})
	}
}

// What is reserved and has room on the other core, too, goes with the server.
func TestAReserveThatHasRoomMoves(t *testing.T) {
	k := newKernel("/a", "/c")
	n, a, c := raisedOnCore0(t, k, table.Reserved)
	c.LowUs, c.LeastUs, c.HighUs = 1_000, 1_000, 1_000
	before := a
	before.Core = 0
	n.apply(tableOf(2, before, c))
	n.now.Add(1_000_000_000)
	sets := k.groups["/a"].sets
	n.apply(tableOf(3, a, c))
	if g := k.groups["/a"]; g.budgetUs != 4_000 || g.sets != sets {
		t.Errorf("it has %d us after %d writes; want none", g.budgetUs, g.sets-sets)
	}
}

// Who cannot be cut does not move: it is told, and tried again.
func TestWhoCannotBeCutDoesNotMove(t *testing.T) {
	k := newKernel("/a", "/c")
	n, a, c := raisedOnCore0(t, k, table.Elastic)
	k.change(func() { k.groups["/a"].setErr = actuator.ErrBusy })
	n.apply(tableOf(2, a, c))
	if got := n.reported("a").Error; k.groups["/a"].core != 0 || !strings.Contains(got, "cutting the budget to 2000 us first") {
		t.Errorf("core %d, %q", k.groups["/a"].core, got)
	}
	k.change(func() { k.groups["/a"].setErr = nil })
	n.now.Add(1_000_000_000)
	n.sweep()
	if a := n.reported("a"); a.Error != "" || k.groups["/a"].core != 1 || k.groups["/a"].budgetUs != 2_000 {
		t.Errorf("core %d, %+v", k.groups["/a"].core, a)
	}
}

// stranded is a node with a server of 5 ms on core 0 that the table sends to core 1, and the kernel refuses to move; and what the table says of it.
func stranded(t *testing.T, k *kernel, others ...table.Server) (n *node, servers []table.Server) {
	t.Helper()
	n = start(t, k, t.TempDir())
	a := high("a", "/a", 0)
	a.LowUs, a.LeastUs, a.HighUs = 5_000, 5_000, 5_000
	servers = append([]table.Server{a}, others...)
	n.apply(tableOf(1, servers...))
	n.now.Add(1_000_000_000) // since the start, of which nothing is promised any more
	k.change(func() { k.groups["/a"].moveErr = actuator.ErrBusy })
	servers[0].Core = 1
	n.apply(tableOf(2, servers...))
	if got := n.reported("a"); !strings.Contains(got.Error, "moving to core 1: tasks of the group stand in the way") || got.BudgetUs != 5_000 {
		t.Fatalf("%+v; want why it has not moved", got)
	}
	return n, servers
}

// What is in force on a core is promised there, whatever the table says: no other server is raised into the room of one
// that could not move.
func TestWhoCannotMoveKeepsItsRoom(t *testing.T) {
	k := newKernel("/a", "/b")
	b := high("b", "/b", 0)
	b.HighUs = 8_000
	n, servers := stranded(t, k, b)
	n.now.Add(1_000_000_000)
	n.send(0, n.programs.event(101, ebpf.KindAlarm, n.now.Load()))
	if sum := k.groups["/a"].budgetUs + k.groups["/b"].budgetUs; sum > 9_000 || n.Report().Cores[0].Broken != 0 {
		t.Errorf("%d of 10000 us are in force, %+v", sum, n.Report().Cores)
	}
	k.change(func() { k.groups["/a"].moveErr = nil })
	n.sweep()
	if got := n.reported("a"); got.Error != "" || k.groups["/a"].core != 1 || n.Report().Cores[1].PromisedPpm < 500_000 {
		t.Errorf("core %d, %+v", k.groups["/a"].core, got)
	}
	n.now.Add(1_000_000_000)
	n.apply(tableOf(3, servers...))
	n.send(0, n.programs.event(101, ebpf.KindAlarm, n.now.Load()))
	if got := k.groups["/b"].budgetUs; got != 8_000 {
		t.Errorf("%d us; want it raised into the room of the one that has left", got)
	}
}

// Nor does one that could not move run on without an end of its budget.
func TestWhoCannotMoveIsStillStopped(t *testing.T) {
	k := newKernel("/a")
	k.enforce = true
	n, _ := stranded(t, k)
	for range 60 {
		n.now.Add(1_000_000_000)
		n.sweep()
	}
	if n.programs.configs[n.programs.slots[100]].Flags&ebpf.FlagEnforce == 0 {
		t.Fatal("the programs do not tell the end of its budget")
	}
	n.send(0, n.programs.event(100, ebpf.KindEnd, n.now.Load()))
	if !k.groups["/a"].throttled {
		t.Error("nobody stops it")
	}
	moves := 0
	for _, what := range k.log {
		if what == "move /a to 1" {
			moves++
		}
	}
	if moves < 5 || moves > 20 {
		t.Errorf("moving it was tried %d times in a minute; want ever more seldom", moves)
	}
}

// One that is tried again and again keeps what is known of it.
func TestWhoCannotMoveIsGovernedOn(t *testing.T) {
	k := newKernel("/a")
	n, _ := stranded(t, k)
	was := n.programs.event(100, ebpf.KindEnd, n.now.Load()).Generation
	for range 3 {
		n.now.Add(10_000_000)
		n.send(0, n.programs.event(100, ebpf.KindEnd, n.now.Load()))
		n.now.Add(40_000_000_000)
		n.sweep()
	}
	if got := n.programs.event(100, ebpf.KindEnd, n.now.Load()).Generation; got != was || n.reported("a").Overruns != 3 {
		t.Errorf("generation %d, was %d; %+v", got, was, n.reported("a"))
	}
}

// A table that takes the move back, or sends it elsewhere, is followed at once.
func TestAMoveThatIsTakenBack(t *testing.T) {
	k := newKernel("/a")
	n, servers := stranded(t, k)
	servers[0].Core = 0
	n.apply(tableOf(3, servers...))
	if got := n.reported("a"); got.Error != "" || k.groups["/a"].core != 0 {
		t.Errorf("core %d, %+v; want nothing to tell", k.groups["/a"].core, got)
	}
	moves := len(k.log)
	n.now.Add(40_000_000_000)
	n.sweep()
	if len(k.log) != moves {
		t.Errorf("%v; want no further attempt", k.log[moves:])
	}
	servers[0].Core = 7
	n.apply(tableOf(4, servers...))
	if got := n.reported("a"); !strings.Contains(got.Error, "core 7 takes no real-time work") || got.BudgetUs != 5_000 || n.Report().Cores[0].PromisedPpm < 500_000 {
		t.Errorf("%+v, %+v; want it governed where it is", got, n.Report().Cores)
	}
}

// Two reserves that move in one table are not both given the room that is left.
func TestTwoReservesMoveToOneCore(t *testing.T) {
	k := newKernel("/a", "/b", "/c")
	n := start(t, k, t.TempDir())
	a, b, c := high("a", "/a", 0), high("b", "/b", 0), high("c", "/c", 1)
	a.Mode, b.Mode = table.Reserved, table.Reserved
	c.LowUs, c.LeastUs, c.HighUs = 4_500, 4_500, 4_500
	n.apply(tableOf(1, a, b, c))
	n.now.Add(1_000_000_000)
	moved := map[string]int64{}
	for _, path := range []string{"/a", "/b"} {
		k.groups[path].moving = func() { moved[path] = k.groups[path].budgetUs }
	}
	a.Core, b.Core = 1, 1
	n.apply(tableOf(2, a, b)) // the one that was there leaves, and its room is promised until its deadline
	if moved["/a"] != 4_000 || moved["/b"] != 2_000 {
		t.Errorf("they came with %v; want the reserve of one", moved)
	}
	n.now.Add(20_000_000)
	n.wake(1)
	if got := k.groups["/b"].budgetUs; got != 4_000 {
		t.Errorf("%d us; want its reserve, now that there is room", got)
	}
}
