package actuator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// life of a container under a backend, until it is let go of. One that has gone is let go of at once.
func life(b Backend, s Server) error {
	g, err := b.Open(s)
	if err != nil {
		return err
	}
	steps := []func() error{
		func() error { return g.Set(2_000) },
		func() error { return g.Move(2) },
		func() error { return g.Set(1_000) },
	}
	if e, enforces := g.(Enforcer); enforces {
		steps = append(steps, e.Throttle, e.Replenish)
	}
	steps = append(steps, func() error { _, err := g.Check(); return err })
	for _, step := range steps {
		if err := step(); err != nil {
			return errors.Join(err, g.Close(true))
		}
	}
	return g.Close(true)
}

// die takes a container's groups and threads away. It returns what a snapshot has of the latter.
func (s *simTree) die(group string) (gone []string) {
	dirs := []string{}
	for _, c := range []string{"cpu", "cpuset"} {
		if dir, err := s.cg.Dir(c, group); err == nil {
			dirs = append(dirs, dir)
		}
	}
	for tid, th := range s.threads {
		if slices.ContainsFunc(values(th.groups), func(dir string) bool { return slices.Contains(dirs, dir) }) {
			delete(s.threads, tid)
			gone = append(gone, fmt.Sprint("thread ", tid))
		}
	}
	s.remove(group)
	return gone
}

// beside is a machine on which another container is governed already.
func (l layout) beside(t *testing.T) (*simTree, containers, Backend) {
	t.Helper()
	s := newSim(t, l.mount)
	c := populate(s)
	b := s.probe(l.backend)
	mustOpen(t, b, Server{Cgroup: c.guaranteed, Core: 1, PeriodUs: 50_000, DeadlineUs: 50_000, BudgetUs: 2_000, HighUs: 4_000, Priority: 5})
	return s, c, b
}

// TestContainerThatDiesBetweenAnyTwoWrites: its groups and threads go before each of the writes of its life in turn.
// What is left to do for it is refused, no other container is touched, and in the end nothing is held for it.
func TestContainerThatDiesBetweenAnyTwoWrites(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			whole, c, b := l.beside(t)
			first := whole.writes + 1
			if err := life(b, serverOf(c.first)); err != nil {
				t.Fatal(err)
			}
			for _, n := range sampling.Points(t, first, whole.writes, deathsPerLayout) {
				diesBefore(t, l, n)
			}
		})
	}
}

func diesBefore(t *testing.T, l layout, n int) {
	t.Helper()
	s, c, b := l.beside(t)
	before, where := s.snapshot(), ""
	s.stepping = func(write int) {
		if write != n {
			return
		}
		s.stepping, where = nil, s.log[len(s.log)-1]
		for _, thread := range s.die(c.first) {
			delete(before, thread)
		}
	}
	if err := life(b, serverOf(c.first)); err != nil && !errors.Is(err, ErrGone) {
		t.Errorf("died after %s: %v; want %v", where, err, ErrGone)
	}
	for range 2 {
		s.clock += sparedFor.Nanoseconds() + settleAfter.Nanoseconds() + 1
		if _, err := b.Sweep(); err != nil {
			t.Errorf("died after %s: Sweep: %v", where, err)
		}
	}
	ofTheDead := func(line string) bool { return strings.Contains(line, c.first) }
	if d := slices.DeleteFunc(differences(before, s.snapshot()), ofTheDead); len(d) > 0 {
		t.Errorf("died after %s: changed:\n%s", where, strings.Join(d, "\n"))
	}
}
