package actuator

import (
	"maps"
	"slices"
	"testing"

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
