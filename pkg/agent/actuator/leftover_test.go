package actuator

import (
	"fmt"
	"testing"
	"time"
)

// TestALevelBeginsBesideWhatIsLeftOver: what a level used before it was put back is charged to the next budget that it gets. That is no more than its
// server had the time to use.
func TestALevelBeginsBesideWhatIsLeftOver(t *testing.T) {
	s, c, b := rtSim(t)
	level := "/kubepods"
	has := func(want string) {
		t.Helper()
		if got := s.get("cpu", level, rtRuntime); got != want {
			t.Errorf("at %d ns %s has %s us; want %s", s.clock, level, got, want)
		}
	}
	sweep := func(after time.Duration) {
		t.Helper()
		s.clock += after.Nanoseconds()
		if _, err := b.Sweep(); err != nil {
			t.Fatal(err)
		}
	}
	again := func(g Group) Group {
		t.Helper()
		if err := g.Close(true); err != nil {
			t.Fatal(err)
		}
		sweep(0)
		has("0")
		sweep(time.Hour) // nothing is taken from it meanwhile
		return mustOpen(t, b, serverOf(c.first))
	}
	g := mustOpen(t, b, serverOf(c.first))
	has("12012000")
	sweep(30 * time.Second)
	g = again(g)
	has("18030000") // and half of that, with 2 * 2000 and an overshoot of 8000 that do not depend on the time
	sweep(30 * time.Second)
	g = again(g) // put back while it makes up for the first
	has("24048000")
	sweep(wornAfter - 1)
	has("24048000")
	sweep(1)
	has("12012000")
	again(g)
	has("24032000") // no more than its budget, and an overshoot
	if err := b.Restore(); err != nil {
		t.Fatal(err)
	}
	has("0")
}

// TestWhatAFormerProcessGaveMayAllBeLeftOver: since when it was there is not known.
func TestWhatAFormerProcessGaveMayAllBeLeftOver(t *testing.T) {
	s, c, b := rtSim(t)
	mustOpen(t, b, serverOf(c.first))
	b = s.probe(RTGroup)
	if err := mustOpen(t, b, serverOf(c.first)).Close(true); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, b, serverOf(c.first))
	if got, want := s.get("cpu", "/kubepods", rtRuntime), "24032000"; got != want {
		t.Errorf("the level has %s us; want %s", got, want)
	}
}

// TestManyThatCameAndWentLeaveRoom: containers that lived for some seconds each do not add up to a pot that is full for two minutes: who comes after
// them is opened, in every class of service.
func TestManyThatCameAndWentLeaveRoom(t *testing.T) {
	const period = 100_000
	server := func(group string, budget int64) Server {
		return Server{Cgroup: group, Core: 1, PeriodUs: period, DeadlineUs: period, BudgetUs: budget, HighUs: budget, Priority: 20}
	}
	for many := range 8 {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			s, c, b := rtSim(t)
			for range many {
				g := mustOpen(t, b, server(c.first, 24_000))
				s.clock += 5 * time.Second.Nanoseconds()
				if err := g.Close(true); err != nil {
					t.Fatal(err)
				}
			}
			for _, group := range []string{c.first, c.bestEffort, c.guaranteed} {
				mustOpen(t, b, server(group, 12_000))
			}
		})
	}
}

// TestNoMoreIsLeftOverThanThereIsRoomFor: who comes is opened, whatever there was before.
func TestNoMoreIsLeftOverThanThereIsRoomFor(t *testing.T) {
	s, c, b := rtSim(t)
	large := serverOf(c.first)
	large.BudgetUs, large.HighUs = large.PeriodUs*8/10, large.PeriodUs*8/10
	for range 3 {
		if err := mustOpen(t, b, large).Close(true); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, b, large)
	if got := s.get("cpu", c.first, rtRuntime); got != fmt.Sprint(large.BudgetUs) {
		t.Errorf("it has %s us, want %d", got, large.BudgetUs)
	}
}

// TestALevelGetsTheRestOnceThereIsRoom: what there was no room for beside it at first it has as soon as another server has gone.
func TestALevelGetsTheRestOnceThereIsRoom(t *testing.T) {
	s, c, b := rtSim(t)
	of := func(group string, percent int64) Server {
		server := serverOf(group)
		server.BudgetUs, server.HighUs = server.PeriodUs*percent/100, server.PeriodUs*percent/100
		return server
	}
	g := mustOpen(t, b, of(c.first, 40))
	s.clock += time.Hour.Nanoseconds()
	must(t, g.Close(true))
	other := mustOpen(t, b, of(c.guaranteed, 45))
	mustOpen(t, b, of(c.first, 10))
	level := above(c.first)[1]
	rest := func() leftover { return b.(*budgeted).leftovers[level] }
	if all := rest(); all.granted == 0 || all.granted >= all.us {
		t.Fatalf("%s has %d us of %d; the test wants a part", level, all.granted, all.us)
	}
	must(t, other.Close(true))
	must(t, second(b.Sweep()))
	if all := rest(); all.granted != all.us {
		t.Errorf("%s has %d us of %d; want all", level, all.granted, all.us)
	}
	need := of(c.first, 10)
	if got, want := s.get("cpu", level, rtRuntime), itoa((demand{need.HighUs, need.PeriodUs}).within(windowUs)+rest().us); got != want {
		t.Errorf("%s has %s us; want %s", level, got, want)
	}
}

// TestWhatWasUsedUnopenedIsLeftOver, too: a container that its runtime started with a budget uses it whether it is opened or not.
func TestWhatWasUsedUnopenedIsLeftOver(t *testing.T) {
	for name, letGo := range map[string]func(r *requestedOne){
		"never opened": func(r *requestedOne) { r.late() },
		"cannot be opened": func(r *requestedOne) {
			cannotBeOpened(r)
			r.sweep(settleAfter)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := asks(t, layouts[0])
			letGo(r)
			level := "/kubepods"
			if got := r.get("cpu", level, rtRuntime); got != "0" {
				t.Fatalf("%s has %s us; want 0", level, got)
			}
			mustOpen(t, r.b, r.server)
			if got := number(r.root("cpu")+level, rtRuntime); got <= 12_012_000+2*r.server.HighUs+overshootUs {
				t.Errorf("%s has %d us; want what the container may have used beside 12012000", level, got)
			}
		})
	}
	r := unmade(t, layouts[0])
	r.sweep(comesWithin + time.Second)
	mustOpen(t, r.b, serverOf(r.others.first))
	if got := r.get("cpu", "/kubepods", rtRuntime); got != "12012000" {
		t.Errorf("kubepods has %s us when nobody came; want 12012000", got)
	}
}
