package actuator

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// realMachine takes the machine for one test and returns a place for its groups, which are removed.
func realMachine(t *testing.T, want string) (Backend, string) {
	t.Helper()
	privileged.Require(t, privileged.Root, privileged.RTGroups)
	privileged.Machine(t)
	b, findings, err := Probe(ProbeOptions{
		Host: host.New("/"), Want: want, StateDir: t.TempDir(), Cores: []int{0, 1},
		Now: func() int64 { return time.Now().UnixNano() },
	})
	if err != nil {
		t.Fatalf("Probe: %v (%v)", err, findings)
	}
	top := fmt.Sprintf("/mainspring-test-%d", os.Getpid())
	makeReal(t, top)
	return b, top
}

// makeReal makes a group in the hierarchies of cpu and cpuset.
func makeReal(t *testing.T, group string) {
	t.Helper()
	cg, err := host.New("/").Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range []string{"cpu", "cpuset"} {
		root, err := cg.Dir(controller, "/")
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(root, group)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeReal(t, dir) })
		if controller == "cpuset" {
			parent := path.Dir(dir)
			for _, file := range []string{cpusetCPUs, cpusetMems} {
				value, err := os.ReadFile(filepath.Join(parent, file))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, file), value, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func removeReal(t *testing.T, dir string) {
	_ = os.WriteFile(filepath.Join(dir, rtRuntime), []byte("0"), 0o644)
	var err error
	for range 50 {
		if err = unix.Rmdir(dir); err == nil || err == unix.ENOENT { //nolint:errorlint // A bare error number.
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("removing %s: %v", dir, err)
}

func readReal(t *testing.T, controller, group, file string) string {
	t.Helper()
	cg, err := host.New("/").Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := cg.Dir(controller, group)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text[:len(text)-1])
}

func TestRTGroupOnThisKernel(t *testing.T) {
	b, top := realMachine(t, RTGroup)
	pod, group := top+"/pod", top+"/pod/c"
	makeReal(t, pod)
	makeReal(t, group)
	t.Logf("capacity %v", b.Capacity([]int{0, 1}))
	g, err := b.Open(Server{Cgroup: group, Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 1_000, HighUs: 2_000})
	if err != nil {
		t.Fatal(err)
	}
	budget, cores, err := g.Read()
	t.Log(budget, cores, err, "pod", readReal(t, "cpu", pod, rtRuntime), readReal(t, "cpu", pod, rtPeriod))
	if budget != (Budget{1_000, 10_000}) || len(cores) != 1 || cores[0] != 1 {
		t.Fatalf("after Open: %v on %v", budget, cores)
	}
	if err := g.Set(2_000); err != nil {
		t.Fatal(err)
	}
	if err := g.Set(2_001); err == nil {
		t.Fatal("Set beyond the high budget succeeded")
	}
	if n := testing.AllocsPerRun(100, func() { _ = g.Set(1_500) }); n != 0 {
		t.Errorf("Set allocates %v times; want 0", n)
	}
	if err := g.Move(0); err != nil {
		t.Fatal(err)
	}
	if drift, err := g.Check(); err != nil || len(drift) != 0 {
		t.Fatalf("Check: %v, %v", drift, err)
	}
	if err := g.Close(true); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{group, pod, top} {
		if got := readReal(t, "cpu", level, rtRuntime); got != "0" {
			t.Errorf("%s of %s is %s after Close; want 0", rtRuntime, level, got)
		}
		if got := readReal(t, "cpuset", level, cpusetCPUs); got != "0-1" {
			t.Errorf("%s of %s is %s after Close; want 0-1", cpusetCPUs, level, got)
		}
	}
}

func TestGranularityOnThisKernel(t *testing.T) {
	b, _ := realMachine(t, RTGroup)
	begin := time.Now()
	us, err := MeasureGranularity(t.Context(), b, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d us, measured in %v", us, time.Since(begin))
	if us > 20_000 {
		t.Errorf("granularity %d us; want at most a few ticks", us)
	}
}

func TestFIFOOnThisKernel(t *testing.T) {
	b, top := realMachine(t, FIFO)
	group := top + "/c"
	makeReal(t, group)
	pid := hog(t)
	write(t, "cpuset", group, "cgroup.procs", pid)
	g, err := b.Open(Server{Cgroup: group, Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 1_000, HighUs: 2_000, Priority: 7})
	if err != nil {
		t.Fatal(err)
	}
	enforcer := g.(Enforcer)
	expectPolicy := func(when string, policy, priority uint32) {
		t.Helper()
		var a unix.SchedAttr
		if err := (linux{}).attr(pid, &a); err != nil || a.Policy != policy || a.Priority != priority {
			t.Fatalf("%s: policy %d priority %d (%v); want %d, %d", when, a.Policy, a.Priority, err, policy, priority)
		}
	}
	expectPolicy("after Open", unix.SCHED_FIFO, 7)
	for what, call := range map[string]func() error{"Throttle": enforcer.Throttle, "Replenish": enforcer.Replenish} {
		if n := testing.AllocsPerRun(50, func() {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times; want 0", what, n)
		}
	}
	if err := enforcer.Throttle(); err != nil {
		t.Fatal(err)
	}
	expectPolicy("after Throttle", unix.SCHED_NORMAL, 0)
	if drift, err := g.Check(); err != nil || len(drift) > 0 {
		t.Fatalf("Check: %v, %v", drift, err)
	}
	expectPolicy("after Check while throttled", unix.SCHED_NORMAL, 0)
	if err := enforcer.Replenish(); err != nil {
		t.Fatal(err)
	}
	expectPolicy("after Replenish", unix.SCHED_FIFO, 7)
	if err := g.(Prioritized).SetPriority(9); err != nil {
		t.Fatal(err)
	}
	expectPolicy("after SetPriority", unix.SCHED_FIFO, 9)
	us, err := MeasureGranularity(t.Context(), b, 0)
	t.Logf("granularity %d us, %v", us, err)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(true); err != nil {
		t.Fatal(err)
	}
	expectPolicy("after Close", unix.SCHED_NORMAL, 0)
	if got := readReal(t, "cpuset", group, cpusetCPUs); got != "0-1" {
		t.Errorf("CPUs %s after Close; want 0-1", got)
	}
	if err := enforcer.Throttle(); !errors.Is(err, ErrGone) {
		t.Errorf("Throttle after Close: %v; want ErrGone", err)
	}
}

func TestDeadlineOnThisKernel(t *testing.T) {
	b, top := realMachine(t, Deadline)
	group := top + "/c"
	makeReal(t, group)
	pid := hog(t)
	write(t, "cpuset", group, "cgroup.procs", pid)
	write(t, "cpu", group, "cgroup.procs", pid)
	g, err := b.Open(Server{Cgroup: group, Core: 1, PeriodUs: 50_000, DeadlineUs: 50_000, BudgetUs: 1_000, HighUs: 5_000})
	if err != nil {
		t.Fatal(err)
	}
	budget, cores, err := g.Read()
	if err != nil || budget != (Budget{5_000, 50_000}) || len(cores) != 1 || cores[0] != 1 {
		t.Fatalf("Read: %v %v %v", budget, cores, err)
	}
	if err := g.Set(4_000); err != nil {
		t.Error(err)
	}
	if err := g.Set(6_000); !errors.Is(err, ErrFixed) {
		t.Errorf("Set beyond the high budget: %v; want ErrFixed", err)
	}
	if err := g.Move(0); err != nil {
		t.Fatal(err)
	}
	if drift, err := g.Check(); err != nil || len(drift) > 0 {
		t.Fatalf("Check: %v, %v", drift, err)
	}
	us, err := MeasureGranularity(t.Context(), b, 0)
	t.Logf("granularity %d us, %v", us, err)
	if err := g.Close(true); err != nil {
		t.Fatal(err)
	}
	var a unix.SchedAttr
	if err := (linux{}).attr(pid, &a); err != nil || a.Policy != unix.SCHED_NORMAL {
		t.Errorf("policy %d after Close (%v); want 0", a.Policy, err)
	}
}

// hog is a process that always wants to run.
func hog(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func write(t *testing.T, controller, group, file string, value int) {
	t.Helper()
	cg, err := host.New("/").Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := cg.Dir(controller, group)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(value)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
