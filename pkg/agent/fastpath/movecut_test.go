package fastpath_test

import (
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// expectKnown checks that the governor and the programs reckon with the budget of /a that is in force.
func expectKnown(t *testing.T, n *node, want int64) {
	t.Helper()
	config := n.programs.configs[n.programs.slots[100]]
	if a := n.reported("a"); a.BudgetUs != want || a.LevelUs != want || config.BudgetNs != uint64(want)*1000 || config.Flags&ebpf.FlagLive == 0 {
		t.Errorf("the programs reckon with %+v, and the report is %+v; want %d us", config, a, want)
	}
	if !strings.Contains(n.reported("a").Error, "moving to core 1") {
		t.Errorf("%+v; want why it has not moved", n.reported("a"))
	}
}

// A reserve that could not move, and for which there is no room any more where it is to go, is cut when that is tried again: not while its core may set its
// budget, too, and not behind the back of the core that goes on to govern it.
func TestACutBeforeARefusedMoveIsKnown(t *testing.T) {
	k := newKernel("/a", "/c")
	n := start(t, k, t.TempDir())
	a, c := high("a", "/a", 0), high("c", "/c", 1)
	a.Mode = table.Reserved
	n.apply(tableOf(1, a))
	n.now.Add(1_000_000_000) // since the start, of which nothing is promised any more
	g := k.groups["/a"]
	k.change(func() { g.moveErr = actuator.ErrBusy })
	a.Core = 1
	n.apply(tableOf(2, a))
	expectKnown(t, n, 4_000)
	cut := int64(-1)
	g.moving = func() { cut = g.budgetUs }
	g.setting = func() {
		if flags := n.programs.configs[n.programs.slots[100]].Flags; flags != 0 {
			t.Errorf("its budget is set while its core governs it: flags %d", flags)
		}
	}
	c.LowUs, c.LeastUs, c.HighUs = 6_000, 6_000, 6_000
	n.apply(tableOf(3, a, c))
	if cut != 2_000 {
		t.Errorf("it was to move with %d us; want 2000", cut)
	}
	expectKnown(t, n, 2_000)
	if core := n.Report().Cores[0]; core.Broken != 0 {
		t.Errorf("%+v", core)
	}
}

// One that would give way to a raise where it is to go does not where it stays, be its core as full as it may.
func TestWhoCannotMoveGivesNoWay(t *testing.T) {
	k := newKernel("/a", "/b", "/d")
	n := start(t, k, t.TempDir())
	a, b, d := high("a", "/a", 0), high("b", "/b", 1), high("d", "/d", 0)
	a.Criticality, a.HighUs = "Low", 2_000
	d.LowUs, d.LeastUs, d.HighUs = 6_700, 6_700, 6_700
	plans := func(generation int64) table.Table {
		out := tableOf(generation, a, b, d)
		out.Plans[1].Squeeze = []table.Squeeze{{ID: "a", FloorUs: 1_000}}
		return out
	}
	n.apply(plans(1))
	n.now.Add(1_000_000_000)
	n.send(1, n.programs.event(101, ebpf.KindAlarm, n.now.Load()))
	g, cuts := k.groups["/a"], []int64{}
	k.change(func() { g.moveErr = actuator.ErrBusy })
	g.moving = func() { cuts = append(cuts, g.budgetUs) }
	a.Core = 1
	n.apply(plans(2))
	expectKnown(t, n, 2_000)
	n.apply(plans(3)) // has it tried again
	expectKnown(t, n, 2_000)
	if len(cuts) != 2 || cuts[0] != 1_000 || cuts[1] != 1_000 {
		t.Errorf("it was to move with %v us; want its floor, twice", cuts)
	}
}
