package actuator

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// realMachine takes the machine for one test and returns a place for its groups, which are removed.
func realMachine(t testing.TB, want string) (Backend, string) {
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
func makeReal(t testing.TB, group string) {
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

func removeReal(t testing.TB, dir string) {
	_ = os.WriteFile(filepath.Join(dir, rtRuntime), []byte("0"), 0o644)
	var err error
	for range 50 {
		if err = unix.Rmdir(dir); err == nil || errors.Is(err, unix.ENOENT) {
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

// TestQuotaOnThisKernel: the self-test must work from a real-time process, too.
func TestQuotaOnThisKernel(t *testing.T) {
	b, top := realMachine(t, CFS)
	group := top + "/c"
	makeReal(t, group)
	g, err := b.Open(Server{Cgroup: group, Core: 1, PeriodUs: 20_000, DeadlineUs: 20_000, BudgetUs: 2_000, HighUs: 4_000})
	if err != nil {
		t.Fatal(err)
	}
	if got := readReal(t, "cpu", group, cfsQuota) + "/" + readReal(t, "cpu", group, cfsPeriod); got != "2000/20000" {
		t.Errorf("quota %s; want 2000/20000", got)
	}
	if err := g.Set(4_000); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := (linux{}).setAttr(0, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 2}); err != nil {
		t.Fatal(err)
	}
	us, err := MeasureGranularity(t.Context(), b, 0)
	if _, err := demote(linux{}, 0); err != nil {
		t.Error(err)
	}
	t.Logf("granularity %d us, %v", us, err)
	if err != nil {
		t.Error(err)
	}
	if err := g.Close(true); err != nil {
		t.Fatal(err)
	}
	if got := readReal(t, "cpu", group, cfsQuota); got != "-1" {
		t.Errorf("quota %s after Close; want -1", got)
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
	if err := os.WriteFile(filepath.Join(controllerDir(t, controller, group), file), []byte(strconv.Itoa(value)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func controllerDir(t *testing.T, controller, group string) string {
	t.Helper()
	cg, err := host.New("/").Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := cg.Dir(controller, group)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBudgetsInForce runs a FIFO thread that never yields in a container of a pod of two: it gets the
// container's budget and no less, before and after a raise, so no level above throttles it.
func TestBudgetsInForceOnThisKernel(t *testing.T) {
	b, top := realMachine(t, RTGroup)
	pod := top + "/pod"
	for _, group := range []string{pod, pod + "/a", pod + "/b"} {
		makeReal(t, group)
	}
	server := Server{Cgroup: pod + "/a", Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 1_000, HighUs: 3_000}
	g, err := b.Open(server)
	if err != nil {
		t.Fatal(err)
	}
	server.Cgroup = pod + "/b"
	if _, err := b.Open(server); err != nil {
		t.Fatal(err)
	}
	pid := hog(t)
	write(t, "cpuset", pod+"/a", "cgroup.procs", pid)
	write(t, "cpu", pod+"/a", "cgroup.procs", pid)
	if err := (linux{}).setAttr(pid, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}); err != nil {
		t.Fatal(err)
	}
	share := func() float64 {
		const watch = 600 * time.Millisecond
		before, _, err := linux{host.New("/")}.progress(pid)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		time.Sleep(watch)
		after, _, err := linux{host.New("/")}.progress(pid)
		if err != nil {
			t.Fatal(err)
		}
		return float64(after-before) / float64(time.Since(begin))
	}
	for _, budget := range []int64{1_000, 3_000} {
		if err := g.Set(budget); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // what is owed from before
		got, want := share(), float64(budget)/10_000
		t.Logf("budget %d us of 10 ms: %.3f of the core", budget, got)
		if got < 0.9*want || got > want+0.02 {
			t.Errorf("budget %d us of 10 ms: %.3f of the core; want %.3f", budget, got, want)
		}
	}
	if err := g.Close(true); err != nil {
		t.Fatal(err)
	}
	var a unix.SchedAttr
	if err := (linux{}).attr(pid, &a); err != nil || a.Policy != unix.SCHED_NORMAL {
		t.Errorf("policy %d after Close (%v); want 0: without a budget it cannot be real-time", a.Policy, err)
	}
}

// TestHotAndSlowTogether has one thread set, throttle and replenish while another checks, moves and closes.
func TestHotAndSlowTogetherOnThisKernel(t *testing.T) {
	for _, name := range []string{RTGroup, FIFO} {
		t.Run(name, func(t *testing.T) {
			b, top := realMachine(t, name)
			group := top + "/c"
			makeReal(t, group)
			pid := sleeper(t)
			write(t, "cpuset", group, "cgroup.procs", pid)
			g, err := b.Open(Server{Cgroup: group, Core: 1, PeriodUs: 10_000, DeadlineUs: 10_000, BudgetUs: 1_000, HighUs: 2_000, Priority: 3})
			if err != nil {
				t.Fatal(err)
			}
			stop, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- hammer(g, stop) }()
			for i := range 200 {
				if _, err := g.Check(); err != nil {
					t.Error(err)
				}
				if err := g.Move(i % 2); err != nil {
					t.Error(err)
				}
			}
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
			if drift, err := g.Check(); err != nil || len(drift) > 0 {
				t.Errorf("after the last Set: %v, %v; want what was asked for last", drift, err)
			}
			again, gone := make(chan struct{}), make(chan error, 1)
			go func() { gone <- hammer(g, again) }()
			if err := g.Close(true); err != nil {
				t.Error(err)
			}
			if err := <-gone; name == FIFO && !errors.Is(err, ErrGone) || name == RTGroup && !errors.Is(err, ErrGone) {
				t.Errorf("the hot side ended with %v; want ErrGone", err)
			}
		})
	}
}

// hammer uses the hot methods of a group until one fails.
func hammer(g Group, stop chan struct{}) error {
	enforcer, enforced := g.(Enforcer)
	for i := int64(0); ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		err := g.Set(1_000 + i%1_000)
		if enforced {
			err = errors.Join(err, enforcer.Throttle(), enforcer.Replenish())
		}
		if err != nil {
			return err
		}
	}
}

// sleeper is a process that does nothing.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func TestLeaveGroupOnThisKernel(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups)
	privileged.Machine(t)
	group := fmt.Sprintf("/mainspring-test-%d", os.Getpid())
	makeReal(t, group)
	joinGroup(t, group)
	if err := LeaveGroup(host.New("/")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if got := parseMembership(string(text))["cpu"]; got != "/" {
		t.Errorf("the process is in %s; want the root group", got)
	}
}

// joinGroup takes the process into a group that has nothing for real-time threads. Those of former tests end a moment
// after the tests do, and until then the kernel refuses the whole process.
func joinGroup(t *testing.T, group string) {
	t.Helper()
	procs := filepath.Join(controllerDir(t, "cpu", group), "cgroup.procs")
	var err error
	for limit := time.Now().Add(5 * time.Second); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		if err = os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0o644); !errors.Is(err, unix.EINVAL) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
