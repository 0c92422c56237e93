package actuator

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A container's first threads may use its budget up before they are first looked at. What they had is on record all the same, and they have it back.
func TestWhoOverrunsBeforeTheFirstSweepHasItsOwnBack(t *testing.T) {
	s := newSim(t, layouts[3].mount)
	c := populate(s)
	clear(s.threads)
	g := mustOpen(t, s.probe(FIFO), serverOf(c.first)).(*fifoGroup) // no thread is in it yet
	tid := s.spawn(c.first, unix.SCHED_NORMAL)
	for _, step := range []struct {
		name   string
		do     func() error
		policy uint32
	}{
		{"its budget ends", g.Throttle, unix.SCHED_NORMAL},
		{"the next period", g.Replenish, unix.SCHED_NORMAL},
		{"the first sweep", func() error { _, err := g.Check(); return err }, unix.SCHED_FIFO},
		{"its budget ends again", g.Throttle, unix.SCHED_NORMAL},
		{"the period after that", g.Replenish, unix.SCHED_FIFO},
		{"the server goes", func() error { return s.probe(FIFO).Restore() }, unix.SCHED_NORMAL},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := s.threads[tid].attr.Policy; got != step.policy {
			t.Errorf("%s: it has policy %d; want %d", step.name, got, step.policy)
		}
	}
}

// A crowd that came while no fast path was there, or while the priority was changed, is as little real-time as any other.
func TestCrowdsThatCameUnseen(t *testing.T) {
	for name, come := range map[string]func(*testing.T, *simTree, containers, *fifoGroup) func() error{
		"between two processes": func(t *testing.T, s *simTree, c containers, g *fifoGroup) func() error {
			s.breed(c.first, 200, int(g.priority.Load()))
			b := s.probe(FIFO)
			return func() error { return checks(mustOpen(t, b, serverOf(c.first)).(*fifoGroup)) }
		},
		"before another priority": func(t *testing.T, s *simTree, c containers, g *fifoGroup) func() error {
			s.breed(c.first, 200, int(g.priority.Load()))
			if err := g.SetPriority(21); !errors.Is(err, errCrowded) {
				t.Errorf("another priority: %v", err)
			}
			return func() error { _, err := g.Check(); return err }
		},
	} {
		s, c, g := crowds(t)
		look := come(t, s, c, g)
		if err := look(); !errors.Is(err, errCrowded) {
			t.Errorf("%s: %v; want it to say that there are too many threads", name, err)
		}
		if n := s.realtime(); n != 0 {
			t.Errorf("%s: %d threads are real-time; want none", name, n)
		}
	}
}

// What cannot be opened again is let go of after a minute, however often that is tried.
func TestWhatCannotBeOpenedIsLetGo(t *testing.T) {
	s, c, _ := crowds(t)
	b := s.probe(FIFO).(*fifo)
	tries := 0
	for range 3 {
		b.opened(c.first, errors.New("it cannot be opened"))
		for range 25 {
			s.clock += int64(time.Second)
			if _, err := b.Sweep(); err != nil {
				t.Fatal(err)
			}
			if tries++; s.realtime() == 0 && tries <= int(sparedFor.Seconds()) {
				t.Fatalf("it was let go of after %d s", tries)
			}
		}
	}
	if n := s.realtime(); n != 0 {
		t.Errorf("%d threads are real-time after %d s; want none", n, tries)
	}
}

// What a quota was is on record also where it has the value that is wanted first: the hot side writes others.
func TestAQuotaThatIsRightIsOnRecord(t *testing.T) {
	for _, l := range layouts {
		if l.backend != CFS {
			continue
		}
		s := newSim(t, l.mount)
		c := populate(s)
		dir, err := s.cg.Dir("cpu", c.first)
		if err != nil {
			t.Fatal(err)
		}
		file, text := filepath.Join(dir, cpuMax), "10000 100000"
		if _, err := os.Stat(file); err != nil {
			file, text = filepath.Join(dir, cfsQuota), "10000"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		g := mustOpen(t, s.probe(CFS), Server{Cgroup: c.first, Core: 1, PeriodUs: 100_000, DeadlineUs: 100_000, HighUs: 20_000, BudgetUs: 10_000, Priority: 20})
		if err := g.Set(20_000); err != nil {
			t.Fatal(err)
		}
		if err := s.probe(CFS).Restore(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(got)) != text {
			t.Errorf("%s is %q after Restore, %v; want %q", file, got, err, text)
		}
	}
}
