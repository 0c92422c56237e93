package actuator

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// realStart takes the machine, and says how processes with one state directory and one clock choose, with a pod's group for theirs.
func realStart(t *testing.T, now *int64) (start func(want string) Choice, pod string) {
	t.Helper()
	privileged.Require(t, privileged.Root, privileged.RTGroups)
	privileged.Machine(t)
	state := t.TempDir()
	start = func(want string) Choice {
		t.Helper()
		c, err := Start(t.Context(), ProbeOptions{
			Host: host.New("/"), Want: want, StateDir: state, Cores: []int{0, 1}, Now: func() int64 { return *now },
		})
		if err != nil {
			t.Fatalf("Start: %v (%v)", err, c.Findings)
		}
		return c
	}
	pod = fmt.Sprintf("/mainspring-test-%d", os.Getpid())
	makeReal(t, pod)
	return start, pod
}

// TestAnotherBackendOnThisKernel puts back what one did, though a real-time thread needs it.
func TestAnotherBackendOnThisKernel(t *testing.T) {
	now := time.Now().UnixNano()
	start, pod := realStart(t, &now)
	group := pod + "/c"
	makeReal(t, group)
	first := start(RTGroup)
	if _, err := first.Backend.Open(Server{Cgroup: group, Core: 1, PeriodUs: 100_000, DeadlineUs: 100_000, BudgetUs: 1_000, HighUs: 5_000}); err != nil {
		t.Fatal(err)
	}
	if tick := (linux{}).tickUs(); first.GranularityUs < tick {
		t.Errorf("granularity %d us; want at least a tick, %d us", first.GranularityUs, tick)
	}
	pid := sleeper(t)
	write(t, "cpu", group, "cgroup.procs", pid)
	if err := (linux{}).setAttr(pid, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}); err != nil {
		t.Fatal(err)
	}
	if again := start(""); again.Backend.Name() != RTGroup || again.GranularityUs != first.GranularityUs || len(again.Notes) > 0 {
		t.Errorf("started again: %s, %d us, %q; want as before", again.Backend.Name(), again.GranularityUs, again.Notes)
	}
	if c := start(CFS); c.Backend.Name() != CFS || len(c.Notes) != 1 {
		t.Errorf("with another wanted: %s, %q; want a note of the former", c.Backend.Name(), c.Notes)
	}
	for _, level := range []string{group, pod} {
		if got := readReal(t, "cpu", level, rtRuntime); got != "0" {
			t.Errorf("%s keeps %s us of the former backend", level, got)
		}
	}
	var a unix.SchedAttr
	if err := (linux{}).attr(pid, &a); err != nil || a.Policy != unix.SCHED_NORMAL {
		t.Errorf("the thread has policy %d (%v); want 0", a.Policy, err)
	}
}

// TestSparedOnThisKernel: a process that cannot open a container leaves it its budget and policy for as long as the table names it.
func TestSparedOnThisKernel(t *testing.T) {
	now := time.Now().UnixNano()
	start, pod := realStart(t, &now)
	group := pod + "/c"
	makeReal(t, group)
	if _, err := start(RTGroup).Backend.Open(Server{Cgroup: group, Core: 1, PeriodUs: 100_000, DeadlineUs: 100_000, BudgetUs: 1_000, HighUs: 5_000}); err != nil {
		t.Fatal(err)
	}
	pid := sleeper(t)
	write(t, "cpu", group, "cgroup.procs", pid)
	if err := (linux{}).setAttr(pid, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}); err != nil {
		t.Fatal(err)
	}
	b := start("").Backend
	for _, step := range []struct {
		named  []string
		budget string
		policy uint32
	}{{[]string{group}, "1000", unix.SCHED_FIFO}, {nil, "0", unix.SCHED_NORMAL}} {
		b.Spare(step.named)
		for range 20 {
			now += (30 * time.Second).Nanoseconds()
			if _, err := b.Sweep(); err != nil {
				t.Fatal(err)
			}
		}
		var a unix.SchedAttr
		err := (linux{}).attr(pid, &a)
		if got := readReal(t, "cpu", group, rtRuntime); err != nil || got != step.budget || a.Policy != step.policy {
			t.Errorf("named %v: %s us, policy %d (%v); want %s us, policy %d", step.named, got, a.Policy, err, step.budget, step.policy)
		}
	}
}

// TestRoomsOnThisKernel: containers that never come do not use up the machine.
func TestRoomsOnThisKernel(t *testing.T) {
	now := time.Now().UnixNano()
	start, pod := realStart(t, &now)
	b := start(RTGroup).Backend
	for i := range 8 {
		if _, err := b.Room(Server{Cgroup: fmt.Sprintf("%s/attempt%d", pod, i), Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 1_000, HighUs: 3_000}); err != nil {
			t.Fatalf("attempt %d: %v", i, err)
		}
		now += comesWithin.Nanoseconds() + 1
		if _, err := b.Sweep(); err != nil {
			t.Fatal(err)
		}
		if got := readReal(t, "cpu", pod, rtRuntime); got != "0" {
			t.Errorf("attempt %d: the pod keeps %s us", i, got)
		}
		b = start("").Backend
	}
}

// watched tells which threads take a policy that a budget bounds for themselves.
type watched struct {
	linux
	own *[]uint32
}

func (w watched) setAttr(tid int, a *unix.SchedAttr) error {
	if tid == unix.Gettid() && (realtime(a.Policy) || a.Policy == unix.SCHED_DEADLINE) {
		*w.own = append(*w.own, a.Policy)
	}
	return w.linux.setAttr(tid, a)
}

// TestTrialsSleepOnThisKernel: a thread that runs on the budget of a trial may be throttled for longer than any caller waits.
func TestTrialsSleepOnThisKernel(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups)
	privileged.Machine(t)
	for _, want := range []string{RTGroup, Deadline} {
		var own []uint32
		_, findings, err := Probe(ProbeOptions{
			Host: host.New("/"), Want: want, StateDir: t.TempDir(), Cores: []int{0, 1}, Now: func() int64 { return 1 }, kernel: watched{linux{host.New("/")}, &own},
		})
		if err != nil || len(own) > 0 {
			t.Errorf("%s: %v %v; threads took policies %v for themselves while they ran", want, err, findings, own)
		}
	}
}

// dozing is slow to see threads fall asleep, and tells how often one was given a policy that a budget bounds before.
type dozing struct {
	linux
	awake, early *atomic.Int32
}

func (d dozing) progress(tid int) (uint64, byte, error) {
	used, state, err := d.linux.progress(tid)
	if d.awake.Add(-1) >= 0 {
		state = runnable
	}
	return used, state, err
}

func (d dozing) setAttr(tid int, a *unix.SchedAttr) error {
	if realtime(a.Policy) && d.awake.Load() > 0 {
		d.early.Add(1)
	}
	return d.linux.setAttr(tid, a)
}

// TestTrialsWaitForSleep: a thread that does not sleep yet may use up what a level above its scratch group has left.
func TestTrialsWaitForSleep(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups)
	privileged.Machine(t)
	k := dozing{linux{host.New("/")}, new(atomic.Int32), new(atomic.Int32)}
	k.awake.Store(3)
	_, findings, err := Probe(ProbeOptions{
		Host: host.New("/"), Want: RTGroup, StateDir: t.TempDir(), Cores: []int{0, 1}, Now: func() int64 { return 1 }, kernel: k,
	})
	if err != nil || k.early.Load() > 0 || k.awake.Load() > 0 {
		t.Errorf("%v %v; %d policies were given to a thread that did not sleep yet", err, findings, k.early.Load())
	}
}
