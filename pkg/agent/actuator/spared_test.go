package actuator

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// restarted is a machine on which the process before governed two containers of a pod, the first with a thread that made itself real-time, and with
// room that was made before it came; and what the files and threads of the first were then.
func restarted(t *testing.T, l layout) (s *simTree, c containers, b Backend, first func() map[string]string) {
	t.Helper()
	s = newSim(t, l.mount)
	c = populate(s)
	b = s.probe(l.backend)
	_, err := b.Room(serverOf(c.first))
	must(t, err)
	mustOpen(t, b, serverOf(c.first))
	mustOpen(t, b, serverOf(c.second))
	tid := s.spawn(c.first, unix.SCHED_RR)
	return s, c, s.probe(l.backend), func() map[string]string {
		out := map[string]string{}
		for name, text := range s.snapshot() {
			if strings.Contains(name, c.first) || name == "thread "+itoa(int64(tid)) {
				out[name] = text
			}
		}
		return out
	}
}

// expectSpared sweeps through ten minutes and expects the container to have what it had.
func expectSpared(t *testing.T, s *simTree, b Backend, before map[string]string, now func() map[string]string) {
	t.Helper()
	for range 20 {
		if _, err := b.Sweep(); err != nil {
			t.Fatal(err)
		}
		s.clock += (30 * time.Second).Nanoseconds()
	}
	if d := differences(before, now()); len(d) > 0 {
		t.Errorf("changed:\n%s", strings.Join(d, "\n"))
	}
}

// What the kernel enforces stays for as long as the table names the container that the fast path cannot open: because
// its core takes no real-time work any more, so that it does not even try, or because that fails. Its pod has room for
// it though another container leaves.
func TestWhatTheTableNamesIsSpared(t *testing.T) {
	for _, l := range layouts {
		if l.backend != RTGroup && l.backend != HCBS {
			continue
		}
		for name, fails := range map[string]bool{"not tried": false, "fails": true} {
			t.Run(l.name+", "+name, func(t *testing.T) {
				t.Parallel()
				s, c, b, first := restarted(t, l)
				before := first()
				g := mustOpen(t, b, serverOf(c.second))
				if fails {
					moved := serverOf(c.first)
					moved.PeriodUs, moved.DeadlineUs, moved.HighUs = 10_000, 10_000, 9_800
					moved.BudgetUs = moved.HighUs
					if _, err := b.Open(moved); err == nil {
						t.Fatal("Open succeeded; the test is wrong")
					}
				}
				b.Spare([]string{c.first})
				expectSpared(t, s, b, before, first)
				must(t, g.Close(true))
				expectSpared(t, s, b, before, first)
				b.Spare(nil)
				must(t, second(b.Sweep()))
				if now := first(); len(differences(before, now)) == 0 {
					t.Error("nothing was put back when it had left the table")
				}
			})
		}
	}
}

// A container that is named but has gone holds no room.
func TestWhatHasGoneIsNotSpared(t *testing.T) {
	s, c, b, _ := restarted(t, layouts[0])
	s.die(c.first)
	s.die(c.second)
	b.Spare([]string{c.first, c.second})
	must(t, second(b.Sweep()))
	if got := s.get("cpu", "/kubepods", rtRuntime); got != "0" {
		t.Errorf("the level has %s us; want 0", got)
	}
}

// What only a process of ours ends goes back to what the application had when no process has tried to open it, and a
// minute after that failed first.
func TestWhatNoProcessWouldEndIsNotSpared(t *testing.T) {
	for name, fails := range map[string]bool{"not tried": false, "fails": true} {
		t.Run(name, func(t *testing.T) {
			s, c, b, _ := restarted(t, layouts[3])
			b.Spare([]string{c.first, c.second})
			if fails {
				for _, group := range []string{c.first, c.second} {
					s.refuse = cpusetCPUs
					moved := serverOf(group)
					moved.Core = 3
					if _, err := b.Open(moved); err == nil {
						t.Fatal("Open succeeded; the test is wrong")
					}
				}
				s.refuse = ""
				must(t, second(b.Sweep()))
				if s.realtime() == 0 {
					t.Error("it was let go of at once")
				}
				s.clock += sparedFor.Nanoseconds() + 1
			}
			must(t, second(b.Sweep()))
			if n := s.realtime(); n != 0 {
				t.Errorf("%d threads are real-time by us; want none", n)
			}
		})
	}
}

// A container that came to the process before is not waited for any more, be it that this one ends after a single sweep.
// What is left of one that the table does not name goes back at once. So does what its runtime wrote for one that the
// table names and no process opens, where only a process of ours ends budgets.
func TestWhoCameIsNotToCome(t *testing.T) {
	for name, of := range map[string]func(*requestedOne){
		"in no table": func(r *requestedOne) {
			mustOpen(r.t, r.b, r.server)
			r.b = r.probe(r.backend)
			r.b.Spare(nil)
		},
		"never opened": func(r *requestedOne) {
			r.b = r.probe(r.backend)
			r.b.Spare([]string{r.server.Cgroup})
		},
	} {
		for _, l := range layouts {
			if name == "never opened" && l.backend != FIFO && l.backend != Deadline {
				continue
			}
			t.Run(name+", "+l.name, func(t *testing.T) {
				t.Parallel()
				r := asks(t, l)
				of(r)
				r.sweep(0)
				r.asWithoutUs()
			})
		}
	}
}
