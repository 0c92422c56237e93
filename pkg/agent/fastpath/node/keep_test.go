package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/node"
	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/host/hosttest"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// refused is why a fast path that governs cores of a machine does not start; nil when it would.
func refused(t *testing.T, machine host.Host, cores ...int) error {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Now())
	ended := make(chan error, 1)
	go func() {
		lock, err := node.Keep(t.Context(), node.Settings{StateDir: t.TempDir(), Clock: clk}, machine, cores)
		ended <- errors.Join(err, lock.Release())
	}()
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Millisecond):
			clk.Step(sole.Step)
		}
	}
}

func TestACoreHasOneFastPathWhateverTheirStateDirectories(t *testing.T) {
	for name, tree := range map[string]*hosttest.Tree{"v1": hosttest.Lab(t), "v2": hosttest.Distribution(t)} {
		first, err := node.Keep(t.Context(), node.Settings{StateDir: t.TempDir(), Clock: clock.RealClock{}}, tree.Host(), []int{1})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err = refused(t, tree.Host(), 0, 1)
		for _, want := range []string{"another fast path governs one of --cores 0-1", "holds core 1"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v; want it to say %q", name, err, want)
			}
		}
		if err := refused(t, tree.Host(), 0); err != nil {
			t.Errorf("%s: another core: %v", name, err)
		}
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
		if err := refused(t, tree.Host(), 0, 1); err != nil {
			t.Errorf("%s: after the first has ended: %v", name, err)
		}
	}
}

// A fast path whose core another one governs touches nothing, though it has a state directory of its own, and begins once that has gone.
func TestAFastPathWaitsForTheOneThatGovernsItsCore(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	p := newProcess(t, "cfs")
	p.args = append(p.args, "--cores", "1")
	privileged.Machine(t)
	former, err := node.Keep(t.Context(), node.Settings{Clock: clock.RealClock{}}, host.New("/"), []int{1})
	if err != nil {
		t.Fatal(err)
	}
	says := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(says)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p.command = exec.CommandContext(t.Context(), p.program, p.flags()...)
	p.command.Stderr = log
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.command.Process.Kill(); _ = p.command.Wait() })
	p.eventually("it to say for whom it waits", func() error {
		text, err := os.ReadFile(says)
		if err == nil && !strings.Contains(string(text), fmt.Sprintf(`governs one of these cores; waiting for it to end cores=1 holder="process %d"`, os.Getpid())) {
			err = fmt.Errorf("it says %q", text)
		}
		return err
	})
	if _, err := os.Stat(filepath.Join(p.state, "actuator.journal")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its journal while another one governs the core: %v", err)
	}
	if err := former.Release(); err != nil {
		t.Fatal(err)
	}
	p.eventually("it to answer", func() error { _, err := p.Report(t.Context()); return err })
}

// elsewhere is the environment variable by which this test's program holds a core, by a file system that only it has mounted.
const elsewhere = "MAINSPRING_TEST_CORE_ELSEWHERE"

// A pod has a network, mounts and control groups of its own. A fast path that governs a core from one meets one that
// does so from another, or from the host.
func TestAPodsFastPathMeetsTheHosts(t *testing.T) {
	core := 1024 + os.Getpid()%60_000 // that no machine has
	if root := os.Getenv(elsewhere); root != "" {
		if _, err := fmt.Sscan(os.Getenv(elsewhere+"_NUMBER"), &core); err != nil {
			t.Fatal(err)
		}
		if _, err := sole.TakeCores(t.Context(), root+"/cgroup.procs", []int{core}, sole.Waiting{Clock: clock.RealClock{}}); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("held by %d\n", os.Getpid())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	privileged.Require(t, privileged.Root)
	machine := host.New("/")
	groups, err := machine.Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	mount := "mount -t cgroup -o cpuset none"
	if groups.InUnified("cpuset") {
		mount = "mount -t cgroup2 none"
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	dir := t.TempDir()
	child := exec.CommandContext(ctx, "unshare", "--mount", "--net", "--ipc", "--uts", "--cgroup", "sh", "-c", mount+` "$0" && exec "$@"`,
		dir, os.Args[0], "-test.run=^TestAPodsFastPathMeetsTheHosts$")
	child.Env = append(os.Environ(), elsewhere+"="+dir, fmt.Sprintf("%s_NUMBER=%d", elsewhere, core))
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanf(out, "held by %d\n", &pid); err != nil {
		t.Fatalf("the process in namespaces of its own does not hold the core: %v", err)
	}
	if _, err := os.Stat(dir + "/cgroup.procs"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its mount is seen here: %v; the test is wrong", err)
	}
	var held *sole.HeldError
	if err := refused(t, machine, core); !errors.As(err, &held) || held.Holder != fmt.Sprintf("process %d", pid) {
		t.Errorf("error %v; want it refused for process %d", err, pid)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	_, copied := io.Copy(io.Discard, out)
	if err := errors.Join(copied, child.Wait()); err != nil {
		t.Error(err)
	}
	if err := refused(t, machine, core); err != nil {
		t.Errorf("after that process has ended: %v", err)
	}
}
