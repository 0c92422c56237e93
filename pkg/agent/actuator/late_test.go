package actuator

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deadlines are the threads that are deadline threads, with their budgets in microseconds.
func (s *simTree) deadlines() map[int]int64 {
	out := map[int]int64{}
	for tid, th := range s.threads {
		if th.attr.Policy == unix.SCHED_DEADLINE {
			out[tid] = int64(th.attr.Runtime) / 1000
		}
	}
	return out
}

// Processes that come when others are governed share the budget with them, those that the application made real-time apart: then it
// has chosen. One that is gone by the next look changes nothing.
func TestProcessesThatComeLaterAreGoverned(t *testing.T) {
	for name, policy := range map[string]uint32{"ordinary": unix.SCHED_NORMAL, "chosen": unix.SCHED_FIFO} {
		s := newSim(t, layouts[5].mount)
		c := populate(s)
		clear(s.threads)
		first := s.spawn(c.first, policy)
		g := mustOpen(t, s.probe(Deadline), serverOf(c.first))
		expect := func(when string, want map[int]int64) {
			t.Helper()
			if got := s.deadlines(); !maps.Equal(got, want) {
				t.Errorf("%s, %s: deadline threads %v; want %v", name, when, got, want)
			}
		}
		check := func() {
			t.Helper()
			s.clock += 1_000_000_000
			if _, err := g.Check(); err != nil {
				t.Fatal(err)
			}
		}
		expect("at first", map[int]int64{first: 2_000})
		late := s.spawn(c.first, unix.SCHED_NORMAL)
		probe := s.spawn(c.first, unix.SCHED_NORMAL)
		check()
		expect("after one look", map[int]int64{first: 2_000})
		delete(s.threads, probe)
		check()
		want := map[int]int64{first: 1_000, late: 1_000}
		if policy == unix.SCHED_FIFO {
			want = map[int]int64{first: 2_000}
		}
		expect("after two", want)
		g = mustOpen(t, s.probe(Deadline), serverOf(c.first)) // another fast path
		check()
		check()
		expect("after a restart", want)
		if policy == unix.SCHED_FIFO {
			continue
		}
		delete(s.threads, first)
		check()
		expect("when the first has ended", map[int]int64{late: 2_000})
		if err := g.Close(true); err != nil {
			t.Fatal(err)
		}
		expect("when it is let go", map[int]int64{})
		if tids := slices.Sorted(maps.Keys(s.threads)); !slices.Equal(tids, []int{late}) || s.threads[late].attr.Policy != unix.SCHED_NORMAL {
			t.Errorf("threads %v are left, with %+v", tids, s.threads[late].attr)
		}
	}
}

// another has a thread end, and gives its number to one with this.
func (s *simTree) another(tid int, attr unix.SchedAttr) {
	ended := *s.threads[tid]
	s.threads[tid] = &simThread{attr: attr, groups: ended.groups, started: ended.started + 1000}
}

// A number that is used again tells nothing of the thread that has it now: neither to the process that governed the former one, nor to the next.
func TestNumbersOfThreadsThatAreUsedAgain(t *testing.T) {
	chosen := unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 30}
	for name, c := range map[string]struct {
		first, second unix.SchedAttr
		restart       bool
		late          bool // who comes afterwards is governed: the application has not chosen
	}{
		"ordinary twice, then a restart": {restart: true, late: true},
		"chosen, then ordinary":          {first: chosen, late: true},
		"ordinary, then chosen":          {second: chosen},
		"chosen, then ordinary, restart": {first: chosen, restart: true, late: true},
		"ordinary, then chosen, restart": {second: chosen, restart: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, layouts[5].mount)
			in := populate(s)
			clear(s.threads)
			tid := s.spawn(in.first, c.first.Policy)
			s.threads[tid].attr = c.first
			b := s.probe(Deadline)
			g := mustOpen(t, b, serverOf(in.first))
			looks := func() {
				t.Helper()
				for range 3 {
					s.clock += 1_000_000_000
					must(t, second(g.Check()))
				}
			}
			looks()
			s.another(tid, c.second)
			looks()
			if c.restart {
				b = s.probe(Deadline)
				g = mustOpen(t, b, serverOf(in.first))
			}
			late := s.spawn(in.first, unix.SCHED_NORMAL)
			looks()
			want := map[int]int64{tid: 2_000}
			if c.late {
				want = map[int]int64{tid: 1_000, late: 1_000}
			}
			if got := s.deadlines(); !maps.Equal(got, want) {
				t.Errorf("deadline threads %v; want %v", got, want)
			}
			must(t, b.Restore())
			expectHas(t, s, tid, c.second)
		})
	}
}

// A thread that is stranded and free is none that its number is kept from.
func TestANumberThatAFreedThreadHad(t *testing.T) {
	s, _, g := deadlines(t)
	tid := slices.Collect(maps.Keys(s.threads))[0]
	must(t, second(g.Check()))
	strand(s, g, tid)
	s.another(tid, roundRobin)
	must(t, second(g.Check()))
	if got := s.deadlines(); len(got) != 1 {
		t.Errorf("deadline threads %v; want thread %d", got, tid)
	}
}

// A thread that has narrowed its own affinity cannot be governed. For each trial the container runs on every CPU, so it is not made at every sweep, though each
// tells of it. Others are governed meanwhile.
func TestThreadsThatNarrowedTheirAffinity(t *testing.T) {
	s, c, g := deadlines(t)
	tid := s.spawn(c.first, unix.SCHED_RR)
	s.pinned = map[int]bool{tid: true}
	spreads := func(sweeps int) (n int) {
		t.Helper()
		before := len(s.log)
		for range sweeps {
			s.clock += int64(time.Second)
			if _, err := g.Check(); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "thread "+itoa(int64(tid))) {
				t.Fatalf("a sweep: %v; want it to tell of thread %d", err, tid)
			}
		}
		for _, line := range s.log[before:] {
			if strings.HasSuffix(line, c.first+"/"+cpusetCPUs+"=0-3") {
				n++
			}
		}
		return n
	}
	if n := spreads(1); n != 1 {
		t.Errorf("it was tried %d times in the first sweep; want 1", n)
	}
	if n := spreads(180); n < 2 || n > 3 {
		t.Errorf("it was tried %d times in three minutes; want 3", n)
	}
	s.pinned = nil
	s.clock += refusedFor.Nanoseconds()
	must(t, second(g.Check()))
	if got := s.deadlines(); len(got) != 2 {
		t.Errorf("deadline threads %v; want both", got)
	}
}

// Records of threads whose number is used again and again do not pile up.
func TestManyThreadsOfOneNumber(t *testing.T) {
	s, _, g := deadlines(t)
	tid := slices.Collect(maps.Keys(s.threads))[0]
	for range 3 * staleThreads {
		s.another(tid, roundRobin)
		must(t, second(g.Check()))
	}
	if n := len(g.backend.journal.records); n > 2*staleThreads {
		t.Errorf("the journal has %d records", n)
	}
	must(t, g.backend.Restore())
	expectAll(t, s, roundRobin)
}
