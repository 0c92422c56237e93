package actuator

import (
	"errors"
	"strings"
	"testing"
)

// fullNode has two servers of 30 % (high) with a period of 2 s, and the third is to come: together the published 90 %, but with what longer periods cost
// the levels above there is not all of it.
func fullNode(t *testing.T) (s *simTree, b Backend, open []Group, third Server) {
	t.Helper()
	s, c, b := rtSim(t)
	server := func(letter string) Server {
		return Server{
			ID: letter, Cgroup: above(c.first)[2] + "/" + strings.Repeat(letter, 64), Core: 1, PeriodUs: 2_000_000, DeadlineUs: 2_000_000,
			BudgetUs: 200_000, HighUs: 600_000, Priority: 20,
		}
	}
	for _, letter := range []string{"a", "b"} {
		if _, err := b.Room(server(letter)); err != nil {
			t.Fatal(err)
		}
		s.tree.Group(server(letter).Cgroup)
		open = append(open, mustOpen(t, b, server(letter)))
	}
	return s, b, open, server("c")
}

// TestTheLastContainerOfAFullNodeBeginsWithItsBudget, though it can be raised less than it was admitted with until another has gone.
func TestTheLastContainerOfAFullNodeBeginsWithItsBudget(t *testing.T) {
	for name, again := range map[string]bool{"at once": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			s, b, open, third := fullNode(t)
			first, err := b.Room(third)
			if err != nil || first.RuntimeUs != third.BudgetUs {
				t.Fatalf("Room: %+v, %v; want its first budget", first, err)
			}
			if again {
				b = s.probe(RTGroup)
				for _, letter := range []string{"a", "b"} {
					other := third
					other.Cgroup = strings.ReplaceAll(third.Cgroup, strings.Repeat("c", 64), strings.Repeat(letter, 64))
					other.ID, other.BudgetUs = letter, 0
					open = append(open[1:], mustOpen(t, b, other))
				}
			}
			if _, err := b.Sweep(); err != nil {
				t.Errorf("Sweep: %v", err)
			}
			s.tree.Group(third.Cgroup)
			s.tree.Write("/sys/fs/cgroup/cpu,cpuacct"+third.Cgroup+"/"+rtPeriod, "2000000\n")
			s.tree.Write("/sys/fs/cgroup/cpu,cpuacct"+third.Cgroup+"/"+rtRuntime, "200000\n")
			third.BudgetUs = 0 // as it is opened: with what it has
			g := mustOpen(t, b, third)
			if err := errors.Join(g.Set(200_000), g.Set(570_000)); err != nil {
				t.Errorf("its low budget, and one that there is room for: %v", err)
			}
			if err := g.Set(600_000); !errors.Is(err, ErrNoRoom) {
				t.Errorf("its high budget: %v; want no room", err)
			}
			if err := open[0].Close(true); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Check(); err != nil {
				t.Fatal(err)
			}
			if err := g.Set(600_000); err != nil {
				t.Errorf("its high budget when another has gone: %v", err)
			}
		})
	}
}

// TestRoomForMoreThanIsLeft: less than it begins with is no room, and nothing is kept of what was tried.
func TestRoomForMoreThanIsLeft(t *testing.T) {
	s, b, _, third := fullNode(t)
	before := s.get("cpu", "/kubepods", rtRuntime)
	third.BudgetUs = 600_000
	if _, err := b.Room(third); !errors.Is(err, ErrNoRoom) {
		t.Errorf("%v; want no room", err)
	}
	if got := s.get("cpu", "/kubepods", rtRuntime); got != before {
		t.Errorf("kubepods has %s us; want %s", got, before)
	}
}
