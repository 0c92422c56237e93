package standalone_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// launcher makes this test binary what a server's command starts as.
const launcher = "MAINSPRING_STANDALONE_TEST_LAUNCHER"

func TestMain(m *testing.M) {
	if text := os.Getenv(victim); text != "" {
		runVictim(text)
	}
	if os.Getenv(breeder) != "" {
		breed()
	}
	if os.Getenv(launcher) == "" {
		os.Exit(m.Run())
	}
	priority, err := strconv.Atoi(strings.TrimPrefix(os.Args[1], "--priority="))
	if err == nil {
		err = standalone.Launch(priority, os.Args[3:])
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// options of a run of a file on this machine with the real fast path.
func options(t *testing.T, text string) standalone.Options {
	t.Helper()
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	fastpath, err := programs.Path(t.Context(), t.TempDir(), programs.FastPath)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(launcher, "1")
	privileged.Machine(t)
	return standalone.Options{
		File: parse(t, text), Fastpath: fastpath, Launcher: []string{self}, StateDir: t.TempDir(), Host: host.New("/"), Clock: clock.RealClock{},
		Show: func(table.Report, time.Duration) {}, Say: func(line string) { t.Log(line) },
	}
}

func expectPutBack(t *testing.T, name string) {
	t.Helper()
	for _, controller := range []string{"cpu", "cpuset"} {
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", controller, standalone.Group, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the group of %s in %s is still there: %v", name, controller, err)
		}
	}
}

func TestRunGovernsAndPutsBack(t *testing.T) {
	for _, backend := range []string{"rtgroup", "fifo"} {
		t.Run(backend, func(t *testing.T) {
			core := lastCore(t)
			o := options(t, fmt.Sprintf(`
backend: %s
cores: [%d]
servers:
- {name: test-loop, criticality: High, period: 100ms, runtime_low: 5ms, runtime_hi: 10ms, command: [sh, -c, "for i in 1 2 3 4 5; do sleep 0.1; done"]}
`, backend, core))
			last, err := standalone.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if len(last.Servers) != 1 {
				t.Fatalf("the last report has %d servers; want 1", len(last.Servers))
			}
			s := last.Servers[0]
			if last.Backend != backend || s.BudgetUs < 5000 || s.PeriodUs != 100_000 || len(s.Cores) != 1 || s.Cores[0] != core || s.UsedUs == 0 {
				t.Errorf("backend %s, server %+v; want it governed on core %d", last.Backend, s, core)
			}
			expectPutBack(t, "test-loop")
		})
	}
}

func TestRunMovesAProcessAndBack(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	o := options(t, fmt.Sprintf("backend: rtgroup\ncores: [%d]\nservers: [{name: test-moved, period: 100ms, runtime_low: 5ms, pid: %d}]", lastCore(t), child.Process.Pid))
	before := groupsOf(t, child.Process.Pid)
	ctx, stop := context.WithCancel(t.Context())
	during := ""
	o.Show = func(table.Report, time.Duration) {
		during = groupsOf(t, child.Process.Pid)
		stop()
	}
	if _, err := standalone.Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(during, ":cpu:"+standalone.Group+"/test-moved\n") {
		t.Errorf("while governed the process is in\n%s", during)
	}
	if after := groupsOf(t, child.Process.Pid); after != before {
		t.Errorf("afterwards the process is in\n%s; want\n%s", after, before)
	}
	expectPutBack(t, "test-moved")
}

func TestRunRefusesBeforeAnythingStarts(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "started")
	o := options(t, fmt.Sprintf("backend: rtgroup\ncores: [%d]\nservers: [{name: test-refused, period: 10ms, runtime_low: 9500us, command: [touch, %s]}]", lastCore(t), mark))
	var refused *standalone.RefusedError
	if _, err := standalone.Run(t.Context(), o); !errors.As(err, &refused) {
		t.Fatalf("error %v; want a refusal", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command was started")
	}
	expectPutBack(t, "test-refused")
}

func TestLaunchGivesUpWithItsParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = writing.Close()
	child := exec.Command(self, "--priority=0", "--", "true")
	child.Env, child.ExtraFiles = append(os.Environ(), launcher+"=1"), []*os.File{reading}
	out, err := child.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "it gave up") {
		t.Errorf("%v, %q; want it to give up", err, out)
	}
}

func groupsOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// twoCores: one is the host's.
var twoCores = privileged.Need{What: "two cores online", Missing: func() error {
	topology, err := host.New("/").Topology()
	if err == nil && len(topology.Online()) < 2 {
		err = errors.New("there is one")
	}
	return err
}}

// lastCore is one that is not the lowest, which is the host's.
func lastCore(t *testing.T) int {
	t.Helper()
	privileged.Require(t, twoCores)
	topology, err := host.New("/").Topology()
	if err != nil {
		t.Fatal(err)
	}
	online := topology.Online()
	return online[len(online)-1]
}
