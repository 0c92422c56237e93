package actuator

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deadlines is a container of one round-robin thread under backend deadline.
func deadlines(t *testing.T) (*simTree, containers, *deadlineGroup) {
	t.Helper()
	s := newSim(t, layouts[5].mount)
	c := populate(s)
	clear(s.threads)
	s.threads[s.spawn(c.first, unix.SCHED_RR)].attr = roundRobin
	return s, c, mustOpen(t, s.probe(Deadline), serverOf(c.first)).(*deadlineGroup)
}

// strand has a thread want to run until it is freed, or for so long that it would be. Errors of sweeps are the test's own.
func strand(s *simTree, g *deadlineGroup, tid int) {
	s.stuck = map[int]bool{tid: true}
	for tries := 6; tries > 0 && s.threads[tid].attr.Policy != unix.SCHED_NORMAL; tries-- {
		s.clock += int64(20 * time.Millisecond)
		_, _ = g.Check()
	}
	s.stuck = nil
}

// Only a thread that is on record, and has its deadlines by us, is freed: another waits for reasons of its own, and no
// process would give it back what it had.
func TestOnlyOurDeadlineThreadsAreFreed(t *testing.T) {
	own := map[string]unix.SchedAttr{
		"round robin": roundRobin,
		"deadline":    {Policy: unix.SCHED_DEADLINE, Runtime: 1e6, Deadline: 1e9, Period: 1e9},
	}
	for when, fault := range map[string]func(*simTree, *deadlineGroup, bool){
		"the journal is full": func(_ *simTree, g *deadlineGroup, is bool) {
			if g.backend.journal.size %= maxJournal; is {
				g.backend.journal.size += maxJournal
			}
		},
		"the kernel is full": func(s *simTree, _ *deadlineGroup, is bool) { s.refuseAll = is },
	} {
		for what, want := range own {
			t.Run(when+", "+what, func(t *testing.T) {
				s, c, g := deadlines(t)
				tid := s.spawn(c.first, want.Policy)
				s.threads[tid].attr = want
				fault(s, g, true)
				strand(s, g, tid)
				expectHas(t, s, tid, want)
				fault(s, g, false)
				must(t, s.probe(Deadline).Restore())
				if got := s.threads[tid].attr; got.Policy != want.Policy || got.Period != want.Period {
					t.Errorf("it has policy %d, period %d; want its own %d, %d", got.Policy, got.Period, want.Policy, want.Period)
				}
			})
		}
	}
}

// A thread that is free when the agent dies is not one that the application has made ordinary.
func TestFreedThreadsAreGovernedByTheNextProcess(t *testing.T) {
	s, c, g := deadlines(t)
	tid := s.spawn(c.first, unix.SCHED_RR)
	s.threads[tid].attr = roundRobin
	must(t, second(g.Check()))
	strand(s, g, tid)
	expectHas(t, s, tid, unix.SchedAttr{})
	b := s.probe(Deadline)
	must(t, second(mustOpen(t, b, serverOf(c.first)).Check()))
	if got := s.threads[tid].attr; got.Policy != unix.SCHED_DEADLINE {
		t.Errorf("it has policy %d; want %d", got.Policy, unix.SCHED_DEADLINE)
	}
	must(t, b.Restore())
	expectAll(t, s, roundRobin)
}
