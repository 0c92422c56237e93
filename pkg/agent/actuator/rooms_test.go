package actuator

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRoom: what a runtime wrote at our request is not what was there before, even for another process.
func TestRoom(t *testing.T) {
	s, c, b := rtSim(t)
	fresh := above(c.first)[2] + "/" + strings.Repeat("a", 64)
	first, err := b.Room(serverOf(fresh))
	if err != nil || first.RuntimeUs != 1_000 || first.PeriodUs != 10_000 {
		t.Fatalf("Room: %+v, %v", first, err)
	}
	if got := s.get("cpu", "/kubepods", rtRuntime); got != "12012000" {
		t.Errorf("kubepods has %s us; want 12012000", got)
	}
	b = s.probe(RTGroup) // the fast path starts again
	if _, err := b.Sweep(); err != nil {
		t.Fatal(err)
	}
	if got := s.get("cpu", "/kubepods", rtRuntime); got != "12012000" {
		t.Errorf("kubepods has %s us after a restart; want 12012000", got)
	}
	s.tree.Group(fresh)
	s.tree.Write("/sys/fs/cgroup/cpu,cpuacct"+fresh+"/"+rtPeriod, "10000\n")
	s.tree.Write("/sys/fs/cgroup/cpu,cpuacct"+fresh+"/"+rtRuntime, "1000\n")
	s.tree.Write("/sys/fs/cgroup/cpuset"+fresh+"/"+cpusetCPUs, "1\n")
	if _, err := b.Sweep(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, b, serverOf(fresh))
	if err := s.probe(RTGroup).Restore(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ controller, group, file, text string }{
		{"cpu", fresh, rtRuntime, "0"}, {"cpu", fresh, rtPeriod, "1000000"}, {"cpuset", fresh, cpusetCPUs, "0-3"},
		{"cpu", "/kubepods", rtRuntime, "0"},
	} {
		if got := s.get(want.controller, want.group, want.file); got != want.text {
			t.Errorf("%s of %s is %q after Restore; want %q", want.file, want.group, got, want.text)
		}
	}
}

// TestRoomThatIsNotUsed: the pod goes before its container came, or the container is never opened.
func TestRoomThatIsNotUsed(t *testing.T) {
	s, c, b := rtSim(t)
	pod := "/kubepods/podlost"
	s.tree.Group(pod)
	for _, group := range []string{pod + "/container", c.first} {
		if _, err := b.Room(serverOf(group)); err != nil {
			t.Fatal(err)
		}
	}
	s.remove(pod)
	for range 2 {
		if _, err := b.Sweep(); err != nil {
			t.Fatal(err)
		}
		s.clock += openedWithin.Nanoseconds() + settleAfter.Nanoseconds()
	}
	if _, err := b.Sweep(); err != nil {
		t.Fatal(err)
	}
	if got := s.get("cpu", "/kubepods", rtRuntime); got != "0" {
		t.Errorf("kubepods has %s us; want 0", got)
	}
}

// TestRoomsOfAttemptsThatFail: a container that cannot be started is made again and again, under another name each time. Its group
// comes and goes between two looks or before one, or never comes at all; the fast path starts again now and then.
func TestRoomsOfAttemptsThatFail(t *testing.T) {
	const one = "12012000" // what kubepods has for one such container
	for name, attempt := range map[string]struct {
		server         string
		after, restart time.Duration // until the next attempt
		come           func(s *simTree, b Backend, group string)
	}{
		"came and went before a look": {"", 5 * time.Minute, 5 * time.Minute, func(s *simTree, _ Backend, group string) { s.tree.Group(group); s.remove(group) }},
		"came and went after one":     {"", time.Second, 5 * time.Minute, func(s *simTree, b Backend, group string) { s.tree.Group(group); _, _ = b.Sweep(); s.remove(group) }},
		"never came":                  {"", 5 * time.Minute, 5 * time.Minute, func(*simTree, Backend, string) {}},
		"never came, made anew":       {"pod/container", 0, 0, func(*simTree, Backend, string) {}},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", started again ", again), func(t *testing.T) {
				s, c, b := rtSim(t)
				pod := above(c.first)[2]
				for i := range 8 {
					server := serverOf(fmt.Sprintf("%s/%s%d", pod, strings.Repeat("b", 63), i))
					server.ID = attempt.server
					if _, err := b.Room(server); err != nil {
						t.Fatalf("attempt %d: %v", i, err)
					}
					if got := s.get("cpu", "/kubepods", rtRuntime); got != one {
						t.Fatalf("attempt %d: kubepods has %s us; want %s", i, got, one)
					}
					attempt.come(s, b, server.Cgroup)
					if again {
						s.clock += attempt.restart.Nanoseconds()
						b = s.probe(RTGroup)
					} else {
						s.clock += attempt.after.Nanoseconds()
					}
					if _, err := b.Sweep(); err != nil {
						t.Fatal(err)
					}
				}
				g := mustOpen(t, b, serverOf(c.first))
				if err := g.Set(2_000); err != nil {
					t.Errorf("a raise of the container that starts at last: %v", err)
				}
			})
		}
	}
}

// TestRoomsStayOverARestart until it is certain that their group does not come.
func TestRoomsStayOverARestart(t *testing.T) {
	s, c, b := rtSim(t)
	server := serverOf(above(c.first)[2] + "/" + strings.Repeat("a", 64))
	if _, err := b.Room(server); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{comesWithin / 2, "12012000"}, {comesWithin / 2, "12012000"}, {1, "0"}} {
		s.clock += step.after.Nanoseconds()
		if _, err := s.probe(RTGroup).Sweep(); err != nil {
			t.Fatal(err)
		}
		if got := s.get("cpu", "/kubepods", rtRuntime); got != step.want {
			t.Errorf("at %s kubepods has %s us; want %s", time.Duration(s.clock), got, step.want)
		}
	}
}

// TestNoGroupsAtTheTop: without CAP_DAC_OVERRIDE only groups below the kubelet's can be made.
func TestNoGroupsAtTheTop(t *testing.T) {
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			s := newSim(t, l.mount)
			populate(s)
			before := s.snapshot()
			s.closed = true
			s.probe(l.backend)
			if d := differences(before, s.snapshot()); len(d) > 0 {
				t.Errorf("probing left:\n%s", strings.Join(d, "\n"))
			}
		})
	}
}

// TestThreadsOfTheApplication get back what they had: those that were there, those made since, and not one
// that has the number of one that ended.
func TestThreadsOfTheApplication(t *testing.T) {
	s := newSim(t, layouts[3].mount)
	c := populate(s)
	own := s.spawn(c.first, unix.SCHED_FIFO)
	s.threads[own].attr.Priority = 55
	ended := s.spawn(c.first, unix.SCHED_RR)
	b := s.probe(FIFO)
	g := mustOpen(t, b, serverOf(c.first))
	made := s.spawn(c.first, unix.SCHED_FIFO)
	s.threads[made].attr.Priority = 20
	s.threads[ended].started = 9_999 // another thread by now
	s.threads[ended].attr = unix.SchedAttr{Policy: unix.SCHED_NORMAL, Nice: 5}
	enforcer := g.(Enforcer)
	for _, step := range []struct {
		do     func() error
		policy uint32
	}{{enforcer.Throttle, unix.SCHED_NORMAL}, {enforcer.Replenish, unix.SCHED_FIFO}} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for _, tid := range []int{own, made, ended} {
			if got := s.threads[tid].attr.Policy; got != step.policy {
				t.Errorf("thread %d has policy %d; want %d", tid, got, step.policy)
			}
		}
	}
	if _, err := g.Check(); err != nil {
		t.Fatal(err)
	}
	if err := s.probe(FIFO).Restore(); err != nil {
		t.Fatal(err)
	}
	for tid, want := range map[int][2]uint32{own: {unix.SCHED_FIFO, 55}, made: {unix.SCHED_NORMAL, 0}, ended: {unix.SCHED_NORMAL, 0}} {
		a := s.threads[tid].attr
		if a.Policy != want[0] || a.Priority != want[1] {
			t.Errorf("thread %d has policy %d priority %d after Restore; want %v", tid, a.Policy, a.Priority, want)
		}
	}
}

// TestStrandedThread is freed, and becomes a deadline thread again two periods later.
func TestStrandedThread(t *testing.T) {
	s := newSim(t, layouts[5].mount)
	c := populate(s)
	g := mustOpen(t, s.probe(Deadline), serverOf(c.first))
	tid := 101
	s.stuck = map[int]bool{tid: true}
	var notes []string
	policies := []uint32{}
	for range 6 {
		drift, err := g.Check()
		if err != nil {
			t.Fatal(err)
		}
		notes = append(notes, drift...)
		policies = append(policies, s.threads[tid].attr.Policy)
		if s.threads[tid].attr.Policy != unix.SCHED_DEADLINE {
			s.stuck = nil
		}
		s.clock += 31_000_000
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "stranded") {
		t.Errorf("notes %q; want one of a stranded thread", notes)
	}
	want := []uint32{unix.SCHED_DEADLINE, unix.SCHED_DEADLINE, unix.SCHED_NORMAL, unix.SCHED_DEADLINE, unix.SCHED_DEADLINE, unix.SCHED_DEADLINE}
	if !slices.Equal(policies, want) {
		t.Errorf("policies %v; want %v", policies, want)
	}
}

// TestBlockedKernel: real-time groups on v2 without a file for their budgets.
func TestBlockedKernel(t *testing.T) {
	s := newSim(t, layouts[4].mount)
	populate(s)
	s.tree.Config("CONFIG_RT_GROUP_SCHED=y")
	s.tree.Write("/proc/cmdline", "quiet\n")
	s.tree.Write("/proc/sys/kernel/osrelease", "6.6.30\n")
	b, findings, err := s.tryProbe("")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Backend == FIFO })
	if b.Name() != Deadline || i < 0 || !strings.Contains(findings[i].Reason, "EPERM in every container") || findings[i].Fix == "" {
		t.Errorf("took %s, %v; want %s, and the trap explained", b.Name(), findings, Deadline)
	}
	if _, _, err := s.tryProbe(FIFO); err == nil || !strings.Contains(err.Error(), "blocked") {
		t.Errorf("wanting fifo: %v; want the trap explained", err)
	}
}

// TestManyThreads: records of threads that ended do not pile up.
func TestManyThreads(t *testing.T) {
	s := newSim(t, layouts[3].mount)
	c := populate(s)
	b := s.probe(FIFO)
	g := mustOpen(t, b, serverOf(c.first))
	for range 200 {
		tid := s.spawn(c.first, unix.SCHED_RR)
		if _, err := g.Check(); err != nil {
			t.Fatal(err)
		}
		delete(s.threads, tid)
	}
	if n := len(b.(*fifo).journal.records); n > 2*staleThreads {
		t.Errorf("the journal has %d records", n)
	}
}

func TestBlockedMachine(t *testing.T) {
	s := newSim(t, layouts[4].mount)
	populate(s)
	s.refuseAll = true
	b, findings, err := s.tryProbe("")
	if err != nil {
		t.Fatal(err)
	}
	if b.Name() != CFS {
		t.Errorf("took %s (%v); want %s", b.Name(), findings, CFS)
	}
	s.closed = true
	s.tree.Remove("/sys/fs/cgroup/kubepods")
	b, findings, err = s.tryProbe("")
	if err != nil || b.Name() != Blocked || len(findings) != 5 {
		t.Fatalf("Probe: %v, %v, %v; want %s with a finding for each backend", b, findings, err, Blocked)
	}
	if _, err := b.Open(serverOf("/kubepods/pod/c")); err == nil || !strings.Contains(err.Error(), "SCHED_FIFO") {
		t.Errorf("Open: %v; want the reasons", err)
	}
	if got := b.Capacity([]int{0})[0]; got != 0 {
		t.Errorf("capacity %d; want 0", got)
	}
}

func TestServerValidation(t *testing.T) {
	for field, change := range map[string]func(*Server){
		"cgroup": func(s *Server) { s.Cgroup = "" }, "periodUs": func(s *Server) { s.PeriodUs = 0 },
		"highUs": func(s *Server) { s.HighUs = 20_000 }, "budgetUs": func(s *Server) { s.BudgetUs = 3_000 },
		"core": func(s *Server) { s.Core = -1 }, `cgroup "kubepods/pod/c"`: func(s *Server) { s.Cgroup = s.Cgroup[1:] },
		"periodUs 9223372036854775807": func(s *Server) { s.PeriodUs, s.HighUs = math.MaxInt64, math.MaxInt64 },
	} {
		s := serverOf("/kubepods/pod/c")
		change(&s)
		if err := s.validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v; want an error that names it", field, err)
		}
	}
	if err := serverOf("/kubepods/pod/c").validate(); err != nil {
		t.Error(err)
	}
}
