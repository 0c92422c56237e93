package actuator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// eachFIFO runs a test on every machine with backend fifo for a container of two ordinary threads, or two that were SCHED_FIFO 50 before
// any process governed them. want is what they and all that they make are to have afterwards.
func eachFIFO(t *testing.T, test func(t *testing.T, s *simTree, c containers, want unix.SchedAttr)) {
	for _, l := range layouts {
		if l.backend != FIFO {
			continue
		}
		for name, want := range map[string]unix.SchedAttr{"ordinary": {}, "real-time": {Policy: unix.SCHED_FIFO, Priority: 50}} {
			t.Run(l.name+" "+name, func(t *testing.T) {
				s := newSim(t, l.mount)
				c := populate(s)
				clear(s.threads)
				for range 2 {
					s.threads[s.spawn(c.first, unix.SCHED_NORMAL)].attr = want
				}
				test(t, s, c, want)
			})
		}
	}
}

// fork has a thread make another, which inherits its scheduling and its groups.
func (k *simKernel) fork(tid int) {
	if th := k.threads[tid]; th != nil {
		k.newThread++
		k.threads[k.newThread] = &simThread{attr: th.attr, groups: maps.Clone(th.groups), started: uint64(k.newThread)}
	}
}

// expectAll that live have a scheduling, and nothing is left to undo.
func expectAll(t *testing.T, s *simTree, want unix.SchedAttr) {
	t.Helper()
	for tid, th := range s.threads {
		if th.attr.Policy != want.Policy || th.attr.Priority != want.Priority {
			t.Errorf("thread %d of %d has policy %d, priority %d; want %d, %d", tid, len(s.threads), th.attr.Policy, th.attr.Priority, want.Policy, want.Priority)
		}
	}
	if m, err := openJournal(s.state, "boot-1"); err != nil || len(m.records) != 0 {
		t.Errorf("the journal has %v, %v; want nothing", m.records, err)
	}
}

// Threads that are made while the backend lets go of their container inherit a policy that no process would take from
// them afterwards.
func TestThreadsMadeWhileAContainerIsLetGoOf(t *testing.T) {
	for name, letGo := range map[string]func(Backend, Group) error{
		"closed":   func(_ Backend, g Group) error { return g.Close(true) },
		"restored": func(b Backend, _ Group) error { return b.Restore() },
		"swept": func(b Backend, g Group) error {
			_, err := b.Sweep()
			return errors.Join(err, g.Close(false), second(b.Sweep()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
				b := s.probe(FIFO)
				g := mustOpen(t, b, serverOf(c.first))
				s.breed(c.first, 1, serverOf(c.first).Priority) // unseen
				forks := 12
				s.changing = func(tid int) {
					if forks > 0 {
						forks--
						s.fork(tid)
					}
				}
				if err := letGo(b, g); err != nil {
					t.Error(err)
				}
				if forks > 0 {
					t.Fatalf("%d forks are left of 12", forks)
				}
				expectAll(t, s, want)
			})
		})
	}
}

func second(_ []string, err error) error { return err }

// One that makes another and ends before it is looked at has not to be looked for any more, but the other has.
func TestThreadsThatGoOnInAnother(t *testing.T) {
	eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
		g := mustOpen(t, s.probe(FIFO), serverOf(c.first))
		clear(s.threads)
		s.breed(c.first, 1, serverOf(c.first).Priority)
		times := 4
		s.reading = func(tid int) {
			if times > 0 {
				times--
				s.fork(tid)
				delete(s.threads, tid)
			}
		}
		if err := g.Close(true); err != nil {
			t.Error(err)
		}
		if len(s.threads) != 1 || times != 0 {
			t.Errorf("%d threads live, and %d times are left", len(s.threads), times)
		}
		expectAll(t, s, want)
	})
}

// newest is the thread of the highest number.
func (k *simKernel) newest() int { return slices.Max(slices.Collect(maps.Keys(k.threads))) }

// being has a group let go of while a thread of it is making another, which is in no list yet. made has it come to its end with that: the other
// has what its maker had when it began.
func being(t *testing.T, s *simTree, c containers, letGo func(Backend, Group) error) (made func()) {
	t.Helper()
	b := s.probe(FIFO)
	g := mustOpen(t, b, serverOf(c.first))
	maker := s.newest()
	s.stuck = map[int]bool{maker: true}
	made = func() {
		s.breed(c.first, 1, serverOf(c.first).Priority)
		delete(s.stuck, maker)
	}
	if err := letGo(b, g); err != nil {
		t.Error(err)
	}
	return made
}

// One that is still being made, and inherited our policy, comes to the group when its maker has been put back for however long. It is looked
// for until no thread can be making another.
func TestThreadsThatAreBeingMade(t *testing.T) {
	for name, next := range map[string]func(s *simTree, b Backend) Backend{
		"by who let go":       func(_ *simTree, b Backend) Backend { return b },
		"by the next process": func(s *simTree, _ Backend) Backend { return s.probe(FIFO) },
	} {
		t.Run(name, func(t *testing.T) {
			eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
				var b Backend
				made := being(t, s, c, func(by Backend, g Group) error { b = by; return g.Close(true) })
				sweep := func() {
					b = next(s, b)
					if _, err := b.Sweep(); err != nil {
						t.Error(err)
					}
				}
				for range 3 {
					sweep()
				}
				made()
				sweep()
				if next(s, b) != b {
					sweep() // who has just come has to see it twice
				}
				expectAll(t, s, want)
			})
		})
	}
}

// Restoring waits for it: no thread may come after that.
func TestRestoringWaitsForThreadsThatAreBeingMade(t *testing.T) {
	eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
		being(t, s, c, func(b Backend, _ Group) error {
			maker, pauses := s.newest(), 0
			s.pausing = func() {
				if pauses++; pauses == 30 {
					s.breed(c.first, 1, serverOf(c.first).Priority)
					delete(s.stuck, maker)
				}
			}
			return b.Restore()
		})
		expectAll(t, s, want)
	})
}

// A thread that runs all the time is known to have made what it was at by the CPU time that it has used.
func TestThreadsThatNeverSleep(t *testing.T) {
	eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
		being(t, s, c, func(b Backend, _ Group) error {
			s.pausing = func() { s.usedNs[s.newest()] += forking / 4 }
			return b.Restore()
		})
		expectAll(t, s, want)
	})
}

// One that gets no core at all may be making another for ever. That is told, and the next process goes on.
func TestThreadsThatNeitherSleepNorRun(t *testing.T) {
	eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
		made := being(t, s, c, func(b Backend, _ Group) error {
			err := b.Restore()
			if text := fmt.Sprintf("thread %d makes", s.newest()); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), text) {
				t.Errorf("Restore: %v; want ErrBusy, and %q", err, text)
			}
			return nil
		})
		made()
		if err := s.probe(FIFO).Restore(); err != nil {
			t.Error(err)
		}
		expectAll(t, s, want)
	})
}

// What a thread asked for since it was let go of is its own, though others are still looked for.
func TestThreadsThatAskSinceTheyWereLetGoOf(t *testing.T) {
	eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
		var b Backend
		made := being(t, s, c, func(by Backend, g Group) error { b = by; return g.Close(true) })
		own := unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 40}
		asks := s.newest() - 1
		s.threads[asks].attr = own
		made()
		if err := b.Restore(); err != nil {
			t.Error(err)
		}
		if got := s.threads[asks].attr; got != own {
			t.Errorf("it has %+v; want %+v, which it asked for", got, own)
		}
		delete(s.threads, asks)
		expectAll(t, s, want)
	})
}

// A path may have named another group before, of which something is left to undo: threads of both are looked for.
func TestThreadsOfTwoGroupsOfOneName(t *testing.T) {
	eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
		b := s.probe(FIFO)
		mustOpen(t, b, serverOf(c.first))
		if err := b.(*fifo).journal.keep(record{
			Controller: b.(*fifo).hierarchy(), Group: c.first, Inode: 1, Thread: 1, Started: 1, Attr: &schedule{}, By: FIFO,
		}); err != nil {
			t.Fatal(err)
		}
		j := b.(*fifo).journal
		slices.Reverse(j.records) // it came first
		s.breed(c.first, 2, serverOf(c.first).Priority)
		if err := b.Restore(); err != nil {
			t.Error(err)
		}
		expectAll(t, s, want)
	})
}

// Where that has no end it is an error, and the next sweep goes on.
func TestThreadsMadeFasterThanTheyAreFound(t *testing.T) {
	eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
		b := s.probe(FIFO)
		g := mustOpen(t, b, serverOf(c.first))
		s.changing = s.fork
		if err := g.Close(true); !errors.Is(err, ErrBusy) {
			t.Errorf("Close: %v; want ErrBusy", err)
		}
		s.changing = nil
		if _, err := s.probe(FIFO).Sweep(); err != nil { // also by a process that has only the journal
			t.Errorf("Sweep: %v", err)
		}
		expectAll(t, s, want)
	})
}

// A thread that inherited a priority which its group has no more is not taken for one that asked for it.
func TestThreadsThatInheritedAFormerPriority(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *simTree, Group, Server) Group{
		"changed": func(t *testing.T, _ *simTree, g Group, _ Server) Group {
			if err := g.(Prioritized).SetPriority(33); err != nil {
				t.Fatal(err)
			}
			return g
		},
		"by the next process": func(t *testing.T, s *simTree, _ Group, server Server) Group {
			server.Priority = 33
			return mustOpen(t, s.probe(FIFO), server)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
				server := serverOf(c.first)
				g := mustOpen(t, s.probe(FIFO), server)
				s.breed(c.first, 3, server.Priority)
				g = change(t, s, g, server)
				if n := s.realtime(); n != 5 {
					t.Errorf("%d threads are real-time; want 5", n)
				}
				if err := g.Close(true); err != nil {
					t.Error(err)
				}
				expectAll(t, s, want)
			})
		})
	}
}

// What a thread that came later asked for itself comes back all the same, or stays where no check has looked at the
// thread since.
func TestThreadsThatAskedForTheirOwnPriority(t *testing.T) {
	for name, look := range map[string]func(Group) error{
		"seen":   func(g Group) error { return second(g.Check()) },
		"unseen": func(Group) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			eachFIFO(t, func(t *testing.T, s *simTree, c containers, want unix.SchedAttr) {
				g := mustOpen(t, s.probe(FIFO), serverOf(c.first))
				s.breed(c.first, 1, 66)
				own := s.newThread
				if err := look(g); err != nil {
					t.Fatal(err)
				}
				if err := g.Close(true); err != nil {
					t.Error(err)
				}
				if got := s.threads[own].attr; got.Policy != unix.SCHED_FIFO || got.Priority != 66 {
					t.Errorf("it has policy %d, priority %d; want 1, 66", got.Policy, got.Priority)
				}
				delete(s.threads, own)
				expectAll(t, s, want)
			})
		})
	}
}
