package fastpath_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// of is the server with these budgets.
func of(s table.Server, low, high int64) table.Server {
	s.LowUs, s.LeastUs, s.HighUs = low, low, high
	return s
}

// raisedBesideM is a node whose servers are on core 0, a raised there, and the table that has m leave that core.
func raisedBesideM(t *testing.T, k *kernel, dir string, a, b, m, nextB table.Server) (n *node, next table.Table) {
	t.Helper()
	n = start(t, k, dir)
	n.apply(tableOf(1, a, b, m))
	n.now.Add(2_000_000_000) // since the start, of which nothing is promised any more
	n.send(0, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
	if got := n.reported("a"); got.BudgetUs != a.HighUs {
		t.Fatalf("%+v; want it raised", got)
	}
	m.Core = 1
	return n, tableOf(2, a, nextB, m)
}

// expectRaiseKept expects that the raise of a goes on.
func expectRaiseKept(t *testing.T, n *node) {
	t.Helper()
	if got, core := n.reported("a"), n.Report().Cores[0]; got.BudgetUs != 4_000 || got.Recoveries > 0 || core.Broken > 0 {
		t.Errorf("%+v, %+v; want its raise kept", got, core)
	}
}

// One table has a server leave a core, and gives others its room or takes it from the core. By that table all servers
// fit, so none loses a raise because the server has not moved yet.
func TestRaisesAreKeptWhereAServerLeaves(t *testing.T) {
	b := high("b", "/b", 0)
	for name, test := range map[string]struct {
		nextB     table.Server
		threshold int64
	}{
		"others grow":      {of(b, 3_000, 3_500), 900_000},
		"the core shrinks": {of(b, 500, 600), 700_000},
	} {
		t.Run(name, func(t *testing.T) {
			m := of(high("m", "/m", 0), 3_000, 3_000)
			m.Criticality = "Low"
			n, next := raisedBesideM(t, newKernel("/a", "/b", "/m"), t.TempDir(), high("a", "/a", 0), of(b, 500, 600), m, test.nextB)
			next.Plans[0].ThresholdPpm = test.threshold
			n.apply(next)
			expectRaiseKept(t, n)
			n.takeLong()
			if got := n.reported("b"); got.BudgetUs != test.nextB.LowUs {
				t.Errorf("%+v; want %d us", got, test.nextB.LowUs)
			}
		})
	}
}

// Nor is a reserve, of which no event told, taken for a raise meanwhile.
func TestAReserveStaysOneWhereAServerLeaves(t *testing.T) {
	k := newKernel("/r", "/b", "/m")
	n := start(t, k, t.TempDir())
	r, b, m := high("r", "/r", 0), of(high("b", "/b", 0), 500, 800), of(high("m", "/m", 0), 2_000, 3_000)
	r.Mode = table.Reserved
	n.apply(tableOf(1, r, b, m))
	n.now.Add(2_000_000_000)
	n.wake(0)
	m.Core, b.HighUs = 1, 4_500
	n.apply(tableOf(2, r, b, m))
	if got, core := n.reported("r"), n.Report().Cores[0]; got.BudgetUs != 4_000 || got.LevelUs != 2_000 || core.Raised != 0 {
		t.Errorf("%+v, %+v; want it at low, and nobody raised", got, core)
	}
}

// A fast path that dies once such a table is kept, and before any server has moved: the next
// one opens the server that leaves on the other core.
func TestRaisesAreKeptWhereAServerLeavesOverARestart(t *testing.T) {
	k, dir, b := newKernel("/a", "/b", "/m"), t.TempDir(), high("b", "/b", 0)
	n, next := raisedBesideM(t, k, dir, high("a", "/a", 0), of(b, 500, 600), of(high("m", "/m", 0), 3_000, 3_000), of(b, 3_000, 3_500))
	n.end()
	data, err := json.Marshal(next)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "table.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	n = start(t, k, dir)
	expectRaiseKept(t, n)
	n.takeLong()
	expectRaiseKept(t, n)
}

// A server whose move is refused stays for an unknown time. Then the least that others are to have comes before raises,
// which is no other each time that the move is tried again.
func TestWhoCannotLeaveIsCountedAgain(t *testing.T) {
	k, b := newKernel("/a", "/b", "/m"), high("b", "/b", 0)
	n, next := raisedBesideM(t, k, t.TempDir(), high("a", "/a", 0), of(b, 500, 600), of(high("m", "/m", 0), 3_000, 3_000), of(b, 3_000, 3_500))
	g, tried := k.groups["/m"], 0
	k.change(func() { g.moveErr = actuator.ErrBusy })
	g.moving = func() { tried++ }
	n.apply(next)
	for range 3 {
		n.takeLong()
		expectRoomKept(t, n)
		for id, want := range map[string]int64{"a": 2_000, "b": 3_000, "m": 3_000} {
			if got := n.reported(id).BudgetUs; got != want {
				t.Errorf("%s has %d us; want %d", id, got, want)
			}
		}
		n.now.Add(31_000_000_000)
		n.sweep()
	}
	if got := n.reported("a"); tried != 4 || got.Recoveries != 1 || n.reported("m").Error == "" {
		t.Errorf("%d moves, %+v; want four, and its raise given back once", tried, got)
	}
	k.change(func() { g.moveErr = nil })
	n.now.Add(31_000_000_000)
	n.sweep()
	if m, core := n.reported("m"), n.Report().Cores[0]; m.Error != "" || core.Raised != 0 || core.Broken != 0 {
		t.Errorf("%+v, %+v; want it moved", m, core)
	}
}
