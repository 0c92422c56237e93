package actuator

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// governs is a container under backend fifo, with a first thread that had this.
func governs(t *testing.T, first unix.SchedAttr) (*simTree, containers, *fifoGroup, int) {
	t.Helper()
	s := newSim(t, layouts[3].mount)
	c := populate(s)
	clear(s.threads)
	tid := s.spawn(c.first, first.Policy)
	s.threads[tid].attr = first
	return s, c, mustOpen(t, s.probe(FIFO), serverOf(c.first)).(*fifoGroup), tid
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expectHas expects a thread to have a policy, priority and nice value.
func expectHas(t *testing.T, s *simTree, tid int, want unix.SchedAttr) {
	t.Helper()
	if got := s.threads[tid].attr; got.Policy != want.Policy || got.Priority != want.Priority || got.Nice != want.Nice {
		t.Errorf("thread %d has policy %d, priority %d, nice %d; want %d, %d, %d", tid, got.Policy, got.Priority, got.Nice, want.Policy, want.Priority, want.Nice)
	}
}

func checks(g *fifoGroup) error { return second(g.Check()) }

var roundRobin = unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 30}

// What a thread brings is its own also where the hot side meets it before any sweep does.
func TestWhoIsMetByTheHotSideFirstHasItsOwnBack(t *testing.T) {
	own := map[string]unix.SchedAttr{
		"round robin": roundRobin, "nice": {Nice: 10}, "batch": {Policy: unix.SCHED_BATCH, Nice: 5},
		"first in, first out": {Policy: unix.SCHED_FIFO, Priority: 66},
		"deadline":            {Policy: unix.SCHED_DEADLINE, Runtime: 1e6, Deadline: 1e7, Period: 1e7},
	}
	groups := map[string]func(*simTree, containers) int{
		"alone":    func(*simTree, containers) int { return 0 },
		"a second": func(s *simTree, c containers) int { return s.spawn(c.first, unix.SCHED_NORMAL) },
	}
	ends := map[string][]func(*fifoGroup) error{
		"stopped":                  {(*fifoGroup).Throttle, checks, (*fifoGroup).Replenish},
		"stopped and let go":       {(*fifoGroup).Throttle, checks},
		"stopped, unseen":          {(*fifoGroup).Throttle},
		"stopped, runs again":      {(*fifoGroup).Throttle, (*fifoGroup).Replenish, checks},
		"runs again":               {(*fifoGroup).Replenish, checks, (*fifoGroup).Throttle},
		"runs again, unseen":       {(*fifoGroup).Replenish},
		"stopped, runs, is opened": {(*fifoGroup).Throttle, func(g *fifoGroup) error { return second2(g.backend.Open(serverOf(g.path))) }},
	}
	for what, want := range own {
		for with, others := range groups {
			for when, steps := range ends {
				t.Run(what+", "+with+", "+when, func(t *testing.T) {
					s := newSim(t, layouts[3].mount)
					c := populate(s)
					clear(s.threads)
					others(s, c)
					g := mustOpen(t, s.probe(FIFO), serverOf(c.first)).(*fifoGroup)
					tid := s.spawn(c.first, want.Policy)
					s.threads[tid].attr = want
					for _, step := range steps {
						must(t, step(g))
					}
					must(t, g.backend.Restore())
					expectHas(t, s, tid, want)
				})
			}
		}
	}
}

func second2(_ Group, err error) error { return err }

// Our own priority may be what the first thread has, too: no thread could have inherited it yet.
func TestWhoBringsOurPriorityHasItBack(t *testing.T) {
	s := newSim(t, layouts[3].mount)
	c := populate(s)
	clear(s.threads)
	g := mustOpen(t, s.probe(FIFO), serverOf(c.first)).(*fifoGroup)
	want := unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: uint32(g.priority.Load())}
	tid := s.spawn(c.first, want.Policy)
	s.threads[tid].attr = want
	must(t, g.Throttle())
	must(t, checks(g))
	must(t, s.probe(FIFO).Restore())
	expectHas(t, s, tid, want)
}

// A thread that is made while its container is stopped, or stopped before a sweep meets it, has not asked for the
// ordinary policy. Like others that were made meanwhile it gets what the first one had, whichever process lets go of the
// container.
func TestThreadsMadeWhileTheirContainerIsStopped(t *testing.T) {
	type step func(t *testing.T, s *simTree, c containers, g *fifoGroup, first int)
	stop := func(t *testing.T, _ *simTree, _ containers, g *fifoGroup, _ int) { must(t, g.Throttle()) }
	run := func(t *testing.T, _ *simTree, _ containers, g *fifoGroup, _ int) { must(t, g.Replenish()) }
	fork := func(_ *testing.T, s *simTree, _ containers, _ *fifoGroup, first int) { s.fork(first) }
	ends := func(_ *testing.T, s *simTree, _ containers, _ *fifoGroup, first int) { delete(s.threads, first) }
	sweep := func(t *testing.T, _ *simTree, _ containers, g *fifoGroup, _ int) { must(t, checks(g)) }
	next := func(t *testing.T, s *simTree, c containers, _ *fifoGroup, _ int) {
		mustOpen(t, s.probe(FIFO), serverOf(c.first))
	}
	for when, steps := range map[string][]step{
		"made while stopped, swept":         {stop, fork, sweep},
		"made while stopped, swept, runs":   {stop, fork, sweep, run},
		"made before, stopped, swept":       {fork, stop, sweep},
		"made before, stopped, swept, runs": {fork, stop, sweep, run, sweep},
		"made while stopped, unseen":        {stop, fork},
		"the agent dies while stopped":      {stop, fork, next},
		"the first ends, too":               {stop, fork, ends},
		"the first ends, then the agent":    {stop, fork, ends, next},
	} {
		for _, first := range []unix.SchedAttr{roundRobin, {Nice: 10}, {}} {
			t.Run(when, func(t *testing.T) {
				s, c, g, tid := governs(t, first)
				for _, do := range steps {
					do(t, s, c, g, tid)
				}
				must(t, s.probe(FIFO).Restore())
				for tid := range s.threads {
					expectHas(t, s, tid, first)
				}
			})
		}
	}
}

// One that is still being made when its container is let go of, stopped, is looked for as well.
func TestThreadsThatAreBeingMadeByStoppedOnes(t *testing.T) {
	s, c, g, maker := governs(t, roundRobin)
	s.stuck = map[int]bool{maker: true}
	must(t, g.Throttle())
	must(t, g.Close(true))
	tid := s.spawn(c.first, unix.SCHED_NORMAL)
	delete(s.stuck, maker)
	must(t, second(g.backend.Sweep()))
	expectHas(t, s, tid, roundRobin)
	expectAll(t, s, roundRobin)
}

// Who comes ordinary and is met so while its container runs has that of its own.
func TestWhoComesOrdinaryStaysSo(t *testing.T) {
	for name, come := range map[string]func(*testing.T, *simTree, containers, *fifoGroup) int{
		"before a sweep": func(t *testing.T, s *simTree, c containers, g *fifoGroup) int {
			tid := s.spawn(c.first, unix.SCHED_NORMAL)
			must(t, checks(g))
			must(t, g.Throttle())
			must(t, checks(g))
			return tid
		},
		"after the agent died": func(_ *testing.T, s *simTree, c containers, _ *fifoGroup) int {
			return s.spawn(c.first, unix.SCHED_NORMAL)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, g, first := governs(t, roundRobin)
			tid := come(t, s, c, g)
			must(t, s.probe(FIFO).Restore())
			expectHas(t, s, tid, unix.SchedAttr{})
			expectHas(t, s, first, roundRobin)
		})
	}
}

// The hot side may be at work while the slow one looks: what is ordinary then says nothing. It begins here once the first thread, which is
// on record, was passed.
func TestSweepsThatMeetTheHotSideAtWork(t *testing.T) {
	for name, meet := range map[string]func(*testing.T, *simTree, *fifoGroup, int){
		"it stops the container": func(t *testing.T, s *simTree, g *fifoGroup, first int) {
			passed := false
			s.reading = func(tid int) {
				if passed = passed || tid == first; passed && tid != first {
					s.reading = nil
					must(t, g.Throttle())
				}
			}
			must(t, checks(g))
		},
		"it stops it, and lets it run": func(t *testing.T, s *simTree, g *fifoGroup, first int) {
			read := 0
			s.reading = func(tid int) {
				if read++; tid == first || read < 3 {
					return
				}
				s.reading = nil
				must(t, g.Throttle())
				s.reading = func(int) {
					s.reading = nil
					must(t, g.Replenish())
				}
			}
			must(t, checks(g))
		},
		"it lets it run": func(t *testing.T, s *simTree, g *fifoGroup, first int) {
			must(t, g.Throttle())
			s.changing = func(int) {
				if s.threads[first].attr.Policy == unix.SCHED_FIFO {
					s.changing = nil
					must(t, checks(g))
				}
			}
			must(t, g.Replenish())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, g, first := governs(t, roundRobin)
			for range 5 {
				s.fork(first)
			}
			meet(t, s, g, first)
			if s.reading != nil || s.changing != nil {
				t.Fatal("the hot side was not at work")
			}
			must(t, s.probe(FIFO).Restore())
			for tid := range s.threads {
				expectHas(t, s, tid, roundRobin)
			}
		})
	}
}

// A thread that comes once a sweep has listed the threads, and is stopped before that one reads what the hot side noted, is in the next list: what
// is noted of it lies there until then. One that has ended by then is noted in vain, and makes room.
func TestWhoComesBetweenTheListAndTheNotes(t *testing.T) {
	for name, ends := range map[string]bool{"it lives": false, "it ends": true} {
		t.Run(name, func(t *testing.T) {
			s, c, g, _ := governs(t, unix.SchedAttr{})
			tid := 0
			s.reading = func(int) {
				s.reading = nil
				tid = s.spawn(c.first, unix.SCHED_RR)
				s.threads[tid].attr = roundRobin
				must(t, g.Throttle())
			}
			must(t, checks(g))
			if g.met.none() {
				t.Fatal("nothing is noted any more of a thread that no sweep has met")
			}
			if ends {
				delete(s.threads, tid)
			}
			must(t, g.Replenish())
			must(t, checks(g))
			if !g.met.none() {
				t.Error("what was noted lies there though it is on record, or of nobody")
			}
			must(t, s.probe(FIFO).Restore())
			if !ends {
				expectHas(t, s, tid, roundRobin)
			}
		})
	}
}

// Notes are done up to the first about a thread that came after the list, whatever numbers they have.
func TestNotesThatAreDone(t *testing.T) {
	for _, begin := range []uint32{0, fifoThreads, 1<<32 - 2} {
		var n notes
		n.begin.Store(begin)
		n.end.Store(begin)
		for tid := int32(1); tid <= 4; tid++ {
			n.note(tid, &roundRobin)
		}
		looked := map[int32]unix.SchedAttr{2: {}, 4: {}}
		for _, step := range []struct{ listed, done uint32 }{{0, 0}, {1, 2}, {2, 2}, {3, 4}, {4, 4}} {
			if had, end := n.read(begin+step.listed, looked); end != begin+step.done || len(had) != 4 {
				t.Errorf("from %d, %d when they were listed: %d of %v are done; want %d of 4", begin, step.listed, end-begin, had, step.done)
			}
		}
	}
}

// One side notes while the other reads: nothing is torn or lost, and what there is no room for is left out.
func TestNotesAreReadWhileTheyAreMade(t *testing.T) {
	var n notes
	const last = 20 * fifoThreads
	done := make(chan map[int32]bool)
	go func() {
		seen := map[int32]bool{}
		for !seen[last] {
			had, end := n.read(n.end.Load(), nil)
			for tid, a := range had {
				if a.Priority != uint32(tid) {
					t.Errorf("thread %d had priority %d", tid, a.Priority)
				}
				seen[tid] = true
			}
			n.done(end)
		}
		done <- seen
	}()
	for tid := int32(1); tid <= last; {
		before := n.end.Load()
		if n.note(tid, &unix.SchedAttr{Priority: uint32(tid)}); n.end.Load() != before {
			tid++
		} else {
			runtime.Gosched() // there is no room
		}
	}
	if seen := <-done; len(seen) != last {
		t.Errorf("%d threads were read; want %d", len(seen), last)
	}
}

// What is noted first of a thread counts, until it is on record.
func TestNotesOfOneThread(t *testing.T) {
	var n notes
	for _, priority := range []uint32{5, 6} {
		n.note(1, &unix.SchedAttr{Priority: priority})
	}
	had, end := n.read(n.end.Load(), nil)
	if len(had) != 1 || had[1].Priority != 5 || n.none() {
		t.Errorf("noted is %v; want priority 5", had)
	}
	n.note(2, &unix.SchedAttr{Priority: 7})
	n.done(end)
	if had, _ := n.read(n.end.Load(), nil); len(had) != 1 || had[2].Priority != 7 {
		t.Errorf("noted is %v; want the second thread", had)
	}
	a := &unix.SchedAttr{Policy: unix.SCHED_RR}
	if allocs := testing.AllocsPerRun(2*fifoThreads, func() { n.note(int32(a.Priority), a); a.Priority++ }); allocs != 0 {
		t.Errorf("a note allocates %v times; want 0", allocs)
	}
}
