package fastpath_test

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

func (g *group) Resize(highUs int64) error {
	g.k.note("resize %s to %d", g.path, highUs)
	if g.resizeErr == nil {
		g.highUs = highUs
	}
	return g.resizeErr
}

// fixed is a group whose high budget is that of its opening.
type fixed struct{ actuator.Group }

// A container whose period is shortened has the share of its core that it had: what it used in the long one is no raise in the short one, for
// which another's room would be taken.
func TestAnEditOfThePeriodIsNoRaise(t *testing.T) {
	k := newKernel("/a", "/b")
	n := start(t, k, t.TempDir())
	a, b := high("a", "/a", 0), high("b", "/b", 0)
	a.Limited, b.Limited = true, true
	a.PeriodUs, a.DeadlineUs, a.LowUs, a.LeastUs, a.HighUs = 100_000, 100_000, 20_000, 20_000, 40_000
	b.HighUs = 5_000
	plan := func(t table.Table) table.Table {
		t.Plans[0].ThresholdPpm, t.Plans[0].MaxRaised = 800_000, 1
		return t
	}
	n.apply(plan(tableOf(1, a, b)))
	n.now.Add(1_000_000_000) // since the start, of which nothing is promised any more
	n.send(0, n.programs.event(101, ebpf.KindAlarm, n.now.Load()))
	a.PeriodUs, a.DeadlineUs, a.LowUs, a.LeastUs, a.HighUs = 10_000, 10_000, 1_900, 1_900, 3_800
	n.apply(plan(tableOf(2, a, b)))
	core := n.Report().Cores[0]
	if got := n.reported("a"); got.BudgetUs != 1_900 || got.LevelUs != 1_900 || got.Waiting || got.Error != "" {
		t.Errorf("%+v; want its low budget", got)
	}
	if k.groups["/b"].budgetUs != 5_000 || core.Broken != 0 || core.Raised != 1 {
		t.Errorf("the other has %d us, %+v; want its raise, and nothing broken", k.groups["/b"].budgetUs, core)
	}
}

// What a group has that is opened anew is no more than it had, nor than a container begins with: who was raised is raised again when it overruns.
func TestWhatAGroupHasThatIsOpenedAnew(t *testing.T) {
	for name, c := range map[string]struct {
		raised       bool
		edit         func(*table.Server)
		opened, want int64
	}{
		"a longer period":    {false, func(s *table.Server) { s.PeriodUs, s.DeadlineUs = 20_000, 20_000 }, 2_000, 2_000},
		"a shorter deadline": {false, func(s *table.Server) { s.DeadlineUs = 5_000 }, 1_000, 2_000}, // there is room for more of the core
		"a shorter period": {false, func(s *table.Server) {
			s.PeriodUs, s.DeadlineUs, s.LowUs, s.LeastUs = 5_000, 5_000, 1_000, 1_000
		}, 1_000, 1_000},
		"a longer period, raised": {true, func(s *table.Server) { s.PeriodUs, s.DeadlineUs = 20_000, 20_000 }, 2_000, 2_000},
		"a longer period and more to do": {true, func(s *table.Server) {
			s.PeriodUs, s.DeadlineUs, s.LowUs, s.LeastUs = 20_000, 20_000, 3_000, 3_000
		}, 3_000, 3_000},
	} {
		for _, enforce := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", enforced by us"}[enforce], func(t *testing.T) {
				k := newKernel("/a")
				k.enforce = enforce
				n := start(t, k, t.TempDir())
				a := high("a", "/a", 0)
				n.apply(tableOf(1, a))
				n.now.Add(1_000_000_000)
				if c.raised {
					n.send(0, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
				}
				opened := int64(-1)
				k.opening = func(s actuator.Server) { opened = s.BudgetUs }
				c.edit(&a)
				n.apply(tableOf(2, a))
				if got := k.groups["/a"].budgetUs; got != c.want || opened != c.opened {
					t.Errorf("it was opened with %d us, and has %d us; want %d us, then %d us", opened, got, c.opened, c.want)
				}
				if got := n.reported("a"); got.LevelUs != c.want || got.Waiting || n.Report().Cores[0].Broken != 0 {
					t.Errorf("%+v, %+v", got, n.Report().Cores)
				}
			})
		}
	}
}

// An edit of what a group is sized for stops no server, and takes no raise from any: the group stays open.
func TestAnEditOfRuntimeHi(t *testing.T) {
	for name, c := range map[string]struct {
		raised      bool
		edit        func(*table.Server)
		want, sized int64
	}{
		"more":              {false, func(s *table.Server) { s.HighUs = 7_500 }, 5_000, 7_500},
		"less":              {false, func(s *table.Server) { s.HighUs = 6_000 }, 5_000, 6_000},
		"more, raised":      {true, func(s *table.Server) { s.HighUs = 7_500 }, 7_000, 7_500},
		"less, raised":      {true, func(s *table.Server) { s.HighUs = 6_000 }, 6_000, 6_000},
		"all of it":         {false, func(s *table.Server) { s.LowUs, s.LeastUs, s.HighUs = 3_000, 3_000, 5_000 }, 3_000, 5_000},
		"another class":     {false, func(s *table.Server) { s.Criticality = "Low" }, 5_000, 5_000},
		"class Low, raised": {true, func(s *table.Server) { s.Criticality = "Low" }, 5_000, 5_000},
	} {
		for _, enforce := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", enforced by us"}[enforce], func(t *testing.T) {
				k := newKernel("/a")
				k.enforce = enforce
				n := start(t, k, t.TempDir())
				a := high("a", "/a", 0)
				a.LowUs, a.LeastUs, a.HighUs = 5_000, 5_000, 7_000
				n.apply(tableOf(1, a))
				n.now.Add(1_000_000_000)
				n.sweep()
				if c.raised {
					n.send(0, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
				}
				before, log := n.reported("a"), len(k.log)
				c.edit(&a)
				n.apply(tableOf(2, a))
				config := n.programs.configs[n.programs.slots[100]]
				if got := k.groups["/a"].budgetUs; got != c.want || config.BudgetNs != uint64(c.want)*1000 {
					t.Errorf("%d us are in force, the programs watch %d ns; want %d us", got, config.BudgetNs, c.want)
				}
				if config.WholeNs != uint64(c.sized)*1000 || config.CleanNs != uint64(a.LowUs)*950 || k.groups["/a"].highUs != c.sized {
					t.Errorf("%+v, sized for %d us; want %d us", config, k.groups["/a"].highUs, c.sized)
				}
				if got := n.reported("a"); got.Raises != before.Raises || got.Waiting || got.Error != "" || len(k.log) != log+1 {
					t.Errorf("%+v after %v; want the group resized, and no more", got, k.log[log:])
				}
			})
		}
	}
}

// Where a group cannot be resized it is opened anew.
func TestAGroupThatCannotBeResized(t *testing.T) {
	k := newKernel("/a")
	k.fixed = true
	n := start(t, k, t.TempDir())
	a := high("a", "/a", 0)
	n.apply(tableOf(1, a))
	a.HighUs = 5_000
	n.apply(tableOf(2, a))
	if want := []string{"open /a on 0", "close /a false", "open /a on 0"}; !slices.Equal(k.log, want) || n.reported("a").BudgetUs != 2_000 {
		t.Errorf("%v, %+v; want %v", k.log, n.reported("a"), want)
	}
}

// What shrinks makes room for what grows, and what is refused is tried again.
func TestTheSmallerIsResizedFirst(t *testing.T) {
	k := newKernel("/a", "/b")
	n := start(t, k, t.TempDir())
	a, b := high("a", "/a", 0), high("b", "/b", 0)
	n.apply(tableOf(1, a, b))
	log := len(k.log)
	k.change(func() { k.groups["/a"].resizeErr = actuator.ErrNoRoom })
	a.HighUs, b.HighUs = 5_000, 3_000
	n.apply(tableOf(2, a, b))
	if want := []string{"resize /b to 3000", "resize /a to 5000"}; !slices.Equal(k.log[log:], want) {
		t.Errorf("%v; want %v", k.log[log:], want)
	}
	k.change(func() { k.groups["/a"].resizeErr = nil })
	n.sweep()
	n.sweep()
	if got, calls := k.groups["/a"].highUs, len(k.log)-log; got != 5_000 || calls != 3 {
		t.Errorf("sized for %d us after %d calls; want 5000 after 3", got, calls)
	}
}

// What a Low server can get, and what the levels above it are sized for, is what its plan raises it to.
func TestALowServerIsSizedByItsPlan(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	a := low("a", "/a", 2_000)
	a.HighUs = 5_000
	plan := tableOf(1, a)
	n.apply(plan)
	expect := func(budget, sized int64) {
		t.Helper()
		if got := n.reported("a"); got.BudgetUs != budget || k.groups["/a"].highUs != sized || n.programs.Config(n.programs.slots[100]).WholeNs != uint64(sized)*1000 {
			t.Errorf("%+v, sized for %d us; want %d us, sized for %d us", got, k.groups["/a"].highUs, budget, sized)
		}
	}
	expect(2_000, 2_000)
	raised := tableOf(2, a)
	raised.Plans[0].Raise = []table.Raise{{ID: "a", ToUs: 5_000}}
	n.apply(raised)
	n.send(0, n.programs.event(100, ebpf.KindAlarm, n.now.Load()))
	expect(5_000, 5_000)
	plan.Generation = 3
	n.apply(plan)
	expect(2_000, 2_000)
}
