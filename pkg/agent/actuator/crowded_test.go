package actuator

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// crowds is a tree with a container of three threads under backend fifo.
func crowds(t *testing.T) (*simTree, containers, *fifoGroup) {
	t.Helper()
	for _, l := range layouts {
		if l.backend != FIFO {
			continue
		}
		s := newSim(t, l.mount)
		c := populate(s)
		clear(s.threads)
		for range 3 {
			s.spawn(c.first, unix.SCHED_NORMAL)
		}
		return s, c, mustOpen(t, s.probe(FIFO), serverOf(c.first)).(*fifoGroup)
	}
	t.Fatal("no layout has backend fifo")
	return nil, containers{}, nil
}

// realtime counts the threads that have a real-time policy.
func (s *simTree) realtime() (out int) {
	for _, th := range s.threads {
		if th.attr.Policy == unix.SCHED_FIFO {
			out++
		}
	}
	return out
}

// breed adds threads that inherit our policy.
func (s *simTree) breed(group string, n, priority int) {
	for range n {
		s.threads[s.spawn(group, unix.SCHED_FIFO)].attr.Priority = uint32(priority)
	}
}

func TestCrowdsAreExpelledForGood(t *testing.T) {
	for name, first := range map[string]func(*fifoGroup) error{
		"at the end of its budget": (*fifoGroup).Throttle,
		"at the next period":       (*fifoGroup).Replenish,
		"at the sweep":             func(g *fifoGroup) error { _, err := g.Check(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			s, c, g := crowds(t)
			if n := s.realtime(); n != 3 {
				t.Fatalf("%d threads are real-time; want 3", n)
			}
			priority := int(g.priority.Load())
			s.breed(c.first, fifoThreads-3, priority)
			if err := first(g); err != nil {
				t.Fatalf("%d threads: %v", fifoThreads, err)
			}
			s.breed(c.first, 2000, priority)
			_ = first(g) // the hot side reaches the first of them; the test does not need what it returns
			if _, err := g.Check(); !errors.Is(err, errCrowded) {
				t.Errorf("Check: %v; want it to say that there are too many threads", err)
			}
			if n := s.realtime(); n != 0 {
				t.Errorf("%d threads are real-time after the sweep; want none", n)
			}
			for tid := range s.threads {
				if tid > 2 {
					delete(s.threads, tid)
				}
			}
			if err := g.Replenish(); !errors.Is(err, errCrowded) || s.realtime() != 0 {
				t.Errorf("with few threads again: %v, %d real-time; want none to come back", err, s.realtime())
			}
			if err := g.Close(true); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCrowdsAreRefused(t *testing.T) {
	s, c, g := crowds(t)
	if err := g.Close(true); err != nil {
		t.Fatal(err)
	}
	s.breed(c.first, fifoThreads+1, 50)
	before := s.realtime()
	if _, err := s.probe(FIFO).Open(serverOf(c.first)); !errors.Is(err, errCrowded) {
		t.Errorf("Open: %v; want it to say that there are too many threads", err)
	}
	if n := s.realtime(); n != before {
		t.Errorf("%d threads are real-time; want the %d as before: none is ours", n, before)
	}
}

// What threads of a crowd had is theirs again when it is let go of: what they brought, or what the first one had.
func TestWhatThreadsOfACrowdHad(t *testing.T) {
	for name, first := range map[string]func(*fifoGroup) error{
		"at the end of its budget": (*fifoGroup).Throttle,
		"at the sweep":             checks,
	} {
		t.Run(name, func(t *testing.T) {
			s, c, g, tid := governs(t, roundRobin)
			for range 200 {
				s.fork(tid)
			}
			own := s.spawn(c.first, unix.SCHED_FIFO)
			s.threads[own].attr.Priority = 66
			_ = first(g)
			if err := checks(g); !errors.Is(err, errCrowded) {
				t.Errorf("Check: %v; want it to say that there are too many threads", err)
			}
			for tid := range s.threads {
				expectHas(t, s, tid, unix.SchedAttr{})
			}
			must(t, s.probe(FIFO).Restore())
			expectHas(t, s, own, unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 66})
			delete(s.threads, own)
			expectAll(t, s, roundRobin)
		})
	}
}

// A crowd stays expelled when the agent is started again, until it is let go of.
func TestCrowdsStayExpelled(t *testing.T) {
	s, c, g := crowds(t)
	s.breed(c.first, fifoThreads, int(g.priority.Load()))
	_ = checks(g)
	for tid := range s.threads {
		if len(s.threads) > 3 {
			delete(s.threads, tid)
		}
	}
	b := s.probe(FIFO)
	g = mustOpen(t, b, serverOf(c.first)).(*fifoGroup)
	_ = g.Replenish()
	if err := checks(g); !errors.Is(err, errCrowded) || s.realtime() != 0 {
		t.Errorf("after another start: %v, %d real-time; want it to say that there were too many threads, and none", err, s.realtime())
	}
	must(t, g.Close(true))
	mustOpen(t, b, serverOf(c.first))
	if n := s.realtime(); n != 3 {
		t.Errorf("%d threads are real-time when it is governed anew; want 3", n)
	}
}

// Where the journal has no room a crowd is expelled all the same: others do not wait for it.
func TestCrowdsAreExpelledWithoutAJournal(t *testing.T) {
	s, c, g := crowds(t)
	s.breed(c.first, fifoThreads, 66)
	g.backend.journal.size = maxJournal
	if err := checks(g); !errors.Is(err, errCrowded) || s.realtime() != 0 {
		t.Errorf("Check: %v, %d real-time; want none", err, s.realtime())
	}
}
