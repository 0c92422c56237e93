package actuator

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// forker is a process with a policy of its own that makes another whenever it is told to.
func forker(t *testing.T, own unix.SchedAttr) (pid int, fork func() int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while read x; do sleep 60 & echo $!; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = unix.Kill(-pid, unix.SIGKILL)
		_ = cmd.Wait()
	})
	must(t, linux{}.setAttr(pid, &own))
	return pid, func() (child int) {
		if _, err := in.Write([]byte("go\n")); err != nil {
			t.Fatal(err)
		}
		_, err := fmt.Fscan(out, &child)
		must(t, err)
		return child
	}
}

// Policies of their own of threads that are made, or come, while their container is stopped, on this kernel.
func TestOwnPoliciesOnThisKernel(t *testing.T) {
	b, top := realMachine(t, FIFO)
	group := top + "/c"
	makeReal(t, group)
	pid, fork := forker(t, roundRobin)
	write(t, "cpuset", group, "cgroup.procs", pid)
	g, err := b.Open(Server{Cgroup: group, Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 1_000, HighUs: 2_000, Priority: 7})
	must(t, err)
	e := g.(Enforcer)
	must(t, e.Throttle())
	child := fork()
	must(t, second(g.Check()))
	must(t, e.Replenish())
	late, nice := sleeper(t), sleeper(t)
	must(t, linux{}.setAttr(late, &roundRobin))
	must(t, linux{}.setAttr(nice, &unix.SchedAttr{Nice: 10}))
	for _, pid := range []int{late, nice} {
		write(t, "cpuset", group, "cgroup.procs", pid)
	}
	must(t, e.Throttle())
	must(t, e.Replenish())
	var a unix.SchedAttr
	for _, pid := range []int{pid, child, late, nice} {
		if err := (linux{}).attr(pid, &a); err != nil || a.Policy != unix.SCHED_FIFO || a.Priority != 7 {
			t.Errorf("process %d has policy %d, priority %d (%v) while it is governed; want 1, 7", pid, a.Policy, a.Priority, err)
		}
	}
	must(t, e.Throttle())
	must(t, g.Close(true))
	for pid, want := range map[int]unix.SchedAttr{pid: roundRobin, child: roundRobin, late: roundRobin, nice: {Nice: 10}} {
		if err := (linux{}).attr(pid, &a); err != nil || a.Policy != want.Policy || a.Priority != want.Priority || a.Nice != want.Nice {
			t.Errorf("process %d has policy %d, priority %d, nice %d (%v); want %d, %d, %d",
				pid, a.Policy, a.Priority, a.Nice, err, want.Policy, want.Priority, want.Nice)
		}
	}
	must(t, b.Restore())
}

// The hot side stops a container and lets it run all the time that sweeps look at it, on this kernel. A thread that they
// meet meanwhile is not taken to have asked for what it has then.
func TestSweepsBesideTheHotSideOnThisKernel(t *testing.T) {
	b, top := realMachine(t, FIFO)
	group := top + "/c"
	makeReal(t, group)
	pid, fork := forker(t, roundRobin)
	write(t, "cpuset", group, "cgroup.procs", pid)
	g, err := b.Open(Server{Cgroup: group, Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 1_000, HighUs: 2_000, Priority: 7})
	must(t, err)
	all := []int{pid}
	for range 20 {
		all = append(all, fork())
	}
	swept, done := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for e := g.(Enforcer); err == nil; err = errors.Join(e.Throttle(), e.Replenish()) {
			select {
			case <-swept:
				done <- err
				return
			default:
			}
		}
		done <- err
	}()
	for range 300 {
		if _, err := g.Check(); err != nil {
			t.Error(err)
			break
		}
	}
	close(swept)
	must(t, <-done)
	must(t, g.Close(true))
	for _, pid := range all {
		var a unix.SchedAttr
		if err := (linux{}).attr(pid, &a); err != nil || a.Policy != roundRobin.Policy || a.Priority != roundRobin.Priority {
			t.Errorf("process %d has policy %d, priority %d (%v); want %d, %d", pid, a.Policy, a.Priority, err, roundRobin.Policy, roundRobin.Priority)
		}
	}
	must(t, b.Restore())
}
