package actuator

import (
	"errors"
	"testing"
	"time"
)

// TestAnotherPeriodIsNoRaise: a group that is opened with another period has the share of its core that it had.
func TestAnotherPeriodIsNoRaise(t *testing.T) {
	for _, l := range layouts {
		if l.backend == FIFO || l.backend == Deadline {
			continue // the one knows of no budget in force, the other has the high one in force from the start
		}
		t.Run(l.name, func(t *testing.T) {
			s := newSim(t, l.mount)
			c := populate(s)
			b := s.probe(l.backend)
			server := Server{Cgroup: c.first, Core: 1, PeriodUs: 100_000, DeadlineUs: 100_000, BudgetUs: 20_000, HighUs: 40_000, Priority: 3}
			g := mustOpen(t, b, server)
			for _, want := range []Budget{{2_000, 10_000}, {10_000, 50_000}, {1_500, 50_000}, {1_500, 50_000}} {
				if err := g.Close(false); err != nil {
					t.Fatal(err)
				}
				server.PeriodUs, server.DeadlineUs, server.BudgetUs, server.HighUs = want.PeriodUs, want.PeriodUs, 0, 2*want.RuntimeUs
				if want.RuntimeUs == 1_500 {
					server.HighUs = 1_500 // no more than that
				}
				g = mustOpen(t, b, server)
				held, _, err := g.Read()
				if err != nil || held != want {
					t.Errorf("%+v, %v; want %+v", held, err, want)
				}
			}
		})
	}
}

// TestResize: the levels have room for another high budget, and the budget in force stays.
func TestResize(t *testing.T) {
	s, c, b := rtSim(t)
	server := serverOf(c.first)
	g := mustOpen(t, b, server)
	resize := g.(Resizable).Resize
	if err := errors.Join(resize(4_000), g.Set(4_000), g.Set(1_000)); err != nil {
		t.Fatal(err)
	}
	if got, want := s.get("cpu", "/kubepods", rtRuntime), itoa(demand{4_000, 10_000}.within(windowUs)); got != want {
		t.Errorf("kubepods has %s us; want %s", got, want)
	}
	if err := errors.Join(resize(3_000), g.Set(3_000)); err != nil {
		t.Fatal(err)
	}
	if err := g.Set(4_000); !errors.Is(err, ErrNoRoom) {
		t.Errorf("the former high budget: %v; want no room", err)
	}
	sweep := func(highUs int64) {
		t.Helper()
		if _, err := b.Sweep(); err != nil {
			t.Fatal(err)
		}
		if got, want := s.get("cpu", "/kubepods", rtRuntime), itoa(demand{highUs, 10_000}.within(windowUs)); got != want {
			t.Errorf("kubepods has %s us; want %s", got, want)
		}
	}
	sweep(4_000)
	s.clock += (settleAfter - time.Second).Nanoseconds()
	if err := errors.Join(g.Set(2_000), resize(2_000)); err != nil {
		t.Fatal(err)
	}
	s.clock += (2 * time.Second).Nanoseconds()
	sweep(4_000) // what it used of the former budget is charged for two windows
	s.clock += settleAfter.Nanoseconds()
	sweep(2_000)
	if drift, err := g.Check(); len(drift) > 0 || err != nil {
		t.Errorf("%v, %v", drift, err)
	}
	if err := errors.Join(g.Close(true), b.Restore()); err != nil {
		t.Fatal(err)
	}
	if err := resize(2_000); !errors.Is(err, ErrGone) {
		t.Errorf("of a closed group: %v", err)
	}
}

// TestResizeWhereTheRoomIsNotThere: what is left of the pot now, and the rest when it is there.
func TestResizeWhereTheRoomIsNotThere(t *testing.T) {
	_, b, open, third := fullNode(t)
	third.HighUs = 300_000
	if _, err := b.Room(third); err != nil {
		t.Fatal(err)
	}
	g := open[1]
	if err := g.(Resizable).Resize(1_800_000); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Set(800_000), g.Set(200_000)); err != nil {
		t.Errorf("what is left: %v", err)
	}
	if err := g.Set(1_200_000); !errors.Is(err, ErrNoRoom) {
		t.Errorf("more than that: %v; want no room", err)
	}
	if err := open[0].Close(true); err != nil {
		t.Fatal(err)
	}
	if err := g.(Resizable).Resize(1_200_000); err != nil {
		t.Fatal(err)
	}
	if err := g.Set(1_200_000); err != nil {
		t.Errorf("when another has gone: %v", err)
	}
}

// TestAResizeByFIFO changes nothing that is enforced.
func TestAResizeByFIFO(t *testing.T) {
	s := newSim(t, layouts[4].mount)
	c := populate(s)
	g := mustOpen(t, s.probe(FIFO), serverOf(c.first))
	writes := s.writes
	if err := g.(Resizable).Resize(5_000); err != nil || s.writes != writes {
		t.Errorf("%v, %d writes", err, s.writes-writes)
	}
	if held, _, err := g.Read(); held.RuntimeUs != 1_000 || err != nil {
		t.Errorf("%+v, %v; want its budget", held, err)
	}
}

// TestTwoChangePlaces: where budgets are given per core the first comes with as much as it has, and gets the rest when the other has left.
func TestTwoChangePlaces(t *testing.T) {
	s := newSim(t, layouts[2].mount)
	c := populate(s)
	b := s.probe(HCBS)
	one := Server{Cgroup: c.first, Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 3_000, HighUs: 5_000, Priority: 3}
	other := one
	other.Cgroup, other.Core = c.guaranteed, 2
	first, second := mustOpen(t, b, one), mustOpen(t, b, other)
	for _, to := range [][2]int{{2, 1}, {1, 2}} {
		if err := errors.Join(first.Move(to[0]), second.Move(to[1])); err != nil {
			t.Fatal(err)
		}
		if err := first.Set(5_000); !errors.Is(err, ErrNoRoom) {
			t.Errorf("its high budget while the other was there: %v; want no room", err)
		}
		for i, g := range []Group{first, second} {
			if drift, err := g.Check(); len(drift) > 0 || err != nil {
				t.Errorf("%v, %v", drift, err)
			}
			if err := errors.Join(g.Set(5_000), g.Set(3_000)); err != nil {
				t.Errorf("its high budget on core %d: %v", to[i], err)
			}
		}
	}
	if err := b.Restore(); err != nil {
		t.Fatal(err)
	}
}

// TestWhoCannotMoveHasWhatItHad: what it has does not fit beside the other, so it stays as it is.
func TestWhoCannotMoveHasWhatItHad(t *testing.T) {
	s := newSim(t, layouts[2].mount)
	c := populate(s)
	b := s.probe(HCBS)
	one := Server{Cgroup: c.first, Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 5_000, HighUs: 6_000, Priority: 3}
	other := one
	other.Cgroup, other.Core = c.guaranteed, 2
	first, _ := mustOpen(t, b, one), mustOpen(t, b, other)
	if err := first.Move(2); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("%v; want no room", err)
	}
	if drift, err := first.Check(); len(drift) > 0 || err != nil {
		t.Errorf("%v, %v", drift, err)
	}
	if err := errors.Join(first.Set(6_000), first.Set(5_000)); err != nil {
		t.Errorf("its high budget: %v", err)
	}
	if held, cores, err := first.Read(); held != (Budget{5_000, 10_000}) || len(cores) != 1 || cores[0] != 1 || err != nil {
		t.Errorf("%+v on %v, %v", held, cores, err)
	}
}
