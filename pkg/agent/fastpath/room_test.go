package fastpath_test

import (
	"fmt"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// low is a server of criticality Low that gives way in the plan of its core.
func low(id, cgroup string, us int64) table.Server {
	s := high(id, cgroup, 0)
	s.Criticality, s.LowUs, s.LeastUs, s.HighUs = "Low", us, us, us
	return s
}

// A container of a victim that is made while a server is raised begins with its floor, where the plan has two modes, and
// has no more once it is governed.
func TestAVictimIsMadeWithItsFloorDuringARaise(t *testing.T) {
	k := newKernel("/a", "/b")
	n := start(t, k, t.TempDir())
	victim := low("b", "", 3_000)
	tableWith := func(generation int64) table.Table {
		out := tableOf(generation, high("a", "/a", 0), victim)
		out.Plans[0].Squeeze = []table.Squeeze{{ID: "b", FloorUs: 1_500}}
		return out
	}
	n.apply(tableWith(1))
	if first, err := n.Room(victim); err != nil || first.RuntimeUs != 3_000 {
		t.Errorf("%+v %v; want its low budget, as nobody is raised", first, err)
	}
	n.send(0, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
	first, err := n.Room(victim)
	if err != nil || first.RuntimeUs != 1_500 {
		t.Errorf("%+v %v; want its floor", first, err)
	}
	k.change(func() { k.groups["/b"].budgetUs = first.RuntimeUs })
	victim.Cgroup = "/b"
	n.apply(tableWith(2))
	if a, b := n.reported("a"), n.reported("b"); a.BudgetUs != 4_000 || b.BudgetUs != 1_500 {
		t.Errorf("a has %d us, b %d", a.BudgetUs, b.BudgetUs)
	}
}

// A core that is not ours has no governor: what is asked of the backend is what the table asks for.
func TestRoomOnACoreThatIsNotOurs(t *testing.T) {
	n := start(t, newKernel(), t.TempDir())
	if first, err := n.Room(high("a", "/a", 7)); err != nil || first.RuntimeUs != 2_000 {
		t.Errorf("%+v %v", first, err)
	}
}

// A victim whose group has gone keeps no server from a raise.
func TestAVictimWhoseGroupIsGoneKeepsNoServerFromARaise(t *testing.T) {
	k := newKernel("/a", "/b")
	n := start(t, k, t.TempDir())
	out := tableOf(1, high("a", "/a", 0), low("b", "/b", 3_000))
	out.Plans[0].Squeeze = []table.Squeeze{{ID: "b", FloorUs: 1_500}}
	n.apply(out)
	k.change(func() { k.groups["/b"].setErr = fmt.Errorf("/b: %w", actuator.ErrGone) })
	n.send(0, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
	if a := n.reported("a"); a.BudgetUs != 4_000 {
		t.Errorf("%+v", a)
	}
}

// The plan does not raise this server of criticality Low, so nothing is reserved for it above what the table asks for, though its high budget be larger.
func TestRoomForALowServerWithAHigherHighBudget(t *testing.T) {
	for name, only := range map[string]bool{"mode Reserved": false, "a backend that reserves": true} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			k.reserved = only
			n := start(t, k, t.TempDir())
			s := low("a", "/a", 1_000)
			s.HighUs = 2_000
			if !only {
				s.Mode = table.Reserved
			}
			if first, err := n.Room(s); err != nil || first.RuntimeUs != 1_000 {
				t.Errorf("%+v %v; want what the table asks for", first, err)
			}
		})
	}
}

// Limited servers are raised in the plan's windows only, so that nothing is reserved for them: such a container begins with its low budget,
// beside one that is raised, and is told of with a lead as in mode Elastic.
func TestNothingIsReservedForALimitedServer(t *testing.T) {
	k := newKernel("/a", "/b", "/c")
	n := start(t, k, t.TempDir())
	a, b, c := high("a", "/a", 0), high("b", "", 0), high("c", "/c", 0)
	a.Limited, b.Limited, b.Mode = true, true, table.Reserved
	c.HighUs = c.LowUs
	tableWith := func(generation int64) table.Table {
		out := tableOf(generation, a, b, c)
		out.Plans[0].ThresholdPpm, out.Plans[0].MaxRaised = 830_000, 1
		return out
	}
	n.apply(tableWith(1))
	n.send(0, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
	first, err := n.Room(b)
	if err != nil || first.RuntimeUs != 2_000 {
		t.Errorf("%+v %v; want its low budget", first, err)
	}
	k.change(func() { k.groups["/b"].budgetUs = first.RuntimeUs })
	b.Cgroup = "/b"
	n.apply(tableWith(2))
	if core := n.Report().Cores[0]; core.PromisedPpm > 830_000 || core.Broken != 0 {
		t.Errorf("%d ppm are promised of 830000, broken %d times", core.PromisedPpm, core.Broken)
	}
	if x, y := n.reported("a"), n.reported("b"); x.LevelUs != 4_000 || y.LevelUs != 2_000 {
		t.Errorf("a has %d us, b %d; the plan raises one", x.LevelUs, y.LevelUs)
	}
	slot := n.programs.slots[101]
	if config := n.programs.Config(slot); config.AlarmNs >= config.BudgetNs {
		t.Errorf("alarm at %d ns of %d", config.AlarmNs, config.BudgetNs)
	}
}

// What is reserved and paid for is in force from the start.
func TestAReserveIsThereFromTheStart(t *testing.T) {
	n := start(t, newKernel("/a", "/c"), t.TempDir())
	b, c := high("b", "", 0), high("c", "/c", 0)
	b.Mode = table.Reserved
	n.apply(tableOf(1, b, c))
	if first, err := n.Room(b); err != nil || first.RuntimeUs != 4_000 {
		t.Errorf("%+v %v; want its high budget", first, err)
	}
	full := tableOf(2, b, c)
	full.Plans[0].ThresholdPpm = 800_000
	n.apply(full)
	if first, err := n.Room(b); err != nil || first.RuntimeUs != 2_000 {
		t.Errorf("%+v %v; want its low budget on a core that is too full", first, err)
	}
}

// A reserve that the backend has no room for does not leave the container without a budget.
func TestAReserveThatHasNoRoomBeginsLow(t *testing.T) {
	k := newKernel()
	n := start(t, k, t.TempDir())
	s := high("a", "/a", 0)
	s.Mode = table.Reserved
	n.apply(tableOf(1, s))
	k.roomFor = 3_000
	if first, err := n.Room(s); err != nil || first.RuntimeUs != 2_000 {
		t.Errorf("%+v %v; want its low budget", first, err)
	}
	k.roomFor = 1_000
	if first, err := n.Room(s); err == nil {
		t.Errorf("%+v; want no room", first)
	}
}
