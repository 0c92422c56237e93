package fastpath_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// raisedOnCore1 is a machine whose fast path has ended: a, of core 1, has 4 ms, to which it was raised from 2. Core 0 is full once d gives way for a.
func raisedOnCore1(t *testing.T) (k *kernel, dir string, moved table.Table) {
	t.Helper()
	k, dir = newKernel("/a", "/b", "/d"), t.TempDir()
	a, b, d := high("a", "/a", 1), high("b", "/b", 0), high("d", "/d", 0)
	b.LowUs, b.LeastUs, b.HighUs = 3_000, 3_000, 3_000
	d.Criticality, d.LowUs, d.LeastUs, d.HighUs = "Low", 3_000, 3_000, 3_000
	n := start(t, k, dir)
	n.apply(tableOf(1, a, b, d))
	n.now.Add(1_000_000_000)
	n.send(1, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
	if got := n.reported("a").BudgetUs; got != 4_000 {
		t.Fatalf("a has %d us; the test is wrong", got)
	}
	n.end()
	a.Core = 0
	moved = tableOf(2, a, b, d)
	moved.Plans[0].Squeeze = []table.Squeeze{{ID: "d", FloorUs: 1_000}}
	return k, dir, moved
}

// expectCut expects a on core 0 with what it may begin with there, and nothing to be promised beyond the plan.
func expectCut(t *testing.T, n *node) {
	t.Helper()
	core := n.Report().Cores[0]
	if a := n.reported("a"); a.BudgetUs != 2_000 || core.Broken != 0 || core.PromisedPpm > 900_000 {
		t.Errorf("a came with %d us, core %+v; want 2000, and at most 900000 ppm promised", a.BudgetUs, core)
	}
}

// The room of a raise was that of the core that is gone.
func TestWhoWasSparedComesToAnotherCoreWithWhatItMayBeginWith(t *testing.T) {
	k, dir, moved := raisedOnCore1(t)
	n := startOn(t, k, dir, 0)
	if a := n.reported("a"); a.HeldUs != 4_000 || a.BudgetUs != 0 || a.Error == "" {
		t.Errorf("%+v; want the 4000 us that are held for it, and why nobody governs it", a)
	}
	n.now.Add(1_000_000_000) // since the start
	n.apply(moved)
	expectCut(t, n)
	if a := n.reported("a"); a.HeldUs != 0 {
		t.Errorf("%+v; want it governed", a)
	}
}

// A fast path that dies when the table of a move is kept, and before it has cut the server: the next one opens it on its new core.
func TestWhoseMoveDidNotBeginComesWithWhatItMayBeginWith(t *testing.T) {
	k, dir, moved := raisedOnCore1(t)
	data, err := json.Marshal(moved)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "table.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	expectCut(t, startOn(t, k, dir, 0, 1))
}

// A server that is opened on the core that it has keeps what is in force.
func TestWhoStaysOnItsCoreKeepsItsRaise(t *testing.T) {
	k, dir, _ := raisedOnCore1(t)
	n := startOn(t, k, dir, 0, 1)
	if a := n.reported("a"); a.BudgetUs != 4_000 {
		t.Errorf("%+v; want its 4000 us", a)
	}
}
