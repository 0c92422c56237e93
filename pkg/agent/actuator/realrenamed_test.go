package actuator

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// renameReal gives a group another name where a controller has it, until the test ends.
func renameReal(t *testing.T, controller, group, to string) {
	t.Helper()
	cg, err := host.New("/").Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := cg.Dir(controller, group)
	if err != nil {
		t.Fatal(err)
	}
	root, err := cg.Dir(controller, "/")
	if err == nil {
		err = os.Rename(dir, root+to)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Rename(root+to, dir); err != nil {
			t.Error(err)
		}
	})
}

// A group with a process that never yields is renamed while it is governed. It is refused, and harmless from then on,
// whether the process that governed it finds out or dies of something else first.
func TestRenamedGroupOnThisKernel(t *testing.T) {
	for _, backend := range []string{RTGroup, FIFO, Deadline, CFS} {
		for _, found := range []string{"by who governs it", "by the next process"} {
			if backend == Deadline && found == "by the next process" {
				continue // the kernel gives the bandwidth of the one before back only after a while; the simulated machines show this one
			}
			t.Run(backend+" "+found, func(t *testing.T) {
				b, top := realMachine(t, backend)
				group, now := top+"/c", top+"/renamed"
				makeReal(t, group)
				pid := hog(t)
				for _, controller := range []string{"cpuset", "cpu"} {
					if controller == "cpuset" || backend != FIFO { // whose threads need the root's budget
						write(t, controller, group, "cgroup.procs", pid)
					}
				}
				g, err := b.Open(Server{Cgroup: group, Core: 1, PeriodUs: 20_000, DeadlineUs: 20_000, BudgetUs: 2_000, HighUs: 4_000, Priority: 7})
				if err != nil {
					t.Fatal(err)
				}
				if backend == RTGroup { // as an application does
					if err := (linux{}).setAttr(pid, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 5}); err != nil {
						t.Fatal(err)
					}
				}
				renameReal(t, "cpu", group, now)
				renameReal(t, "cpuset", group, now)
				if found == "by who governs it" {
					if _, err := g.Check(); !errors.Is(err, ErrRenamed) {
						t.Errorf("Check: %v; want ErrRenamed", err)
					}
					if err := g.Close(true); err != nil {
						t.Errorf("Close: %v", err)
					}
				} else if err := again(t, b).Restore(); err != nil {
					t.Errorf("Restore: %v", err)
				}
				expectOrdinary(t, now, pid)
			})
		}
	}
}

// again is the same backend in a process that has only the journal.
func again(t *testing.T, b Backend) Backend {
	t.Helper()
	var state string
	switch b := b.(type) {
	case *budgeted:
		state = b.journal.path
	case *cfs:
		state = b.journal.path
	case *fifo:
		state = b.journal.path
	}
	m, err := newMachine(ProbeOptions{
		Host: host.New("/"), StateDir: filepath.Dir(state), Cores: []int{0, 1}, Now: func() int64 { return 1 }, kernel: linux{host.New("/")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range candidates() {
		if c.name != b.Name() {
			continue
		}
		next, _, err := c.build(m) // untried: what the former process did may hold all that a trial takes
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	return nil
}

// expectOrdinary checks that a group and a process in it are as they were before any process governed them.
func expectOrdinary(t *testing.T, group string, pid int) {
	t.Helper()
	var a unix.SchedAttr
	if err := (linux{}).attr(pid, &a); err != nil || a.Policy != unix.SCHED_NORMAL {
		t.Errorf("policy %d (%v); want 0", a.Policy, err)
	}
	for _, want := range []struct{ controller, file, text string }{
		{"cpu", rtRuntime, "0"}, {"cpu", rtPeriod, "1000000"}, {"cpu", cfsQuota, "-1"}, {"cpuset", cpusetCPUs, "0-1"},
	} {
		if got := readReal(t, want.controller, group, want.file); got != want.text {
			t.Errorf("%s of the renamed group is %s; want %s", want.file, got, want.text)
		}
	}
}
