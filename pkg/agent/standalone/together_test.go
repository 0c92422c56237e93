package standalone_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Two runs whose servers have the same names, on cores of their own: the second is refused, and its end does the first no harm.
func TestASecondRunWithTheSameNames(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "first")
	text := fmt.Sprintf(`
backend: cfs
cores: [%d]
servers: [{name: test-same, period: 100ms, runtime_low: 5ms, policy: own, command: [sh, -c, "echo $$ > %s; sleep 300"]}]
`, lastCore(t), mark)
	first := options(t, text)
	second := first
	second.StateDir = t.TempDir()
	second.File.Cores = "0"
	var refused error
	ctx, stop := context.WithCancel(t.Context())
	first.Show = func(table.Report, time.Duration) {
		if text, err := os.ReadFile(mark); err != nil || !strings.HasSuffix(string(text), "\n") || refused != nil {
			return // the first run's process, which has five percent of a core, has not begun yet
		}
		_, refused = standalone.Run(t.Context(), second)
		expectAlive(t, mark)
		stop()
	}
	if _, err := standalone.Run(ctx, first); err != nil {
		t.Error(err)
	}
	if refused == nil || !strings.Contains(refused.Error(), "another run has a server of this name, with processes") {
		t.Errorf("the second run ends with %v; want it refused", refused)
	}
	expectPutBack(t, "test-same")
	for _, dir := range []string{first.StateDir, second.StateDir} {
		if _, err := os.Stat(filepath.Join(dir, "undo.json")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("something is still noted to be undone in %s: %v", dir, err)
		}
	}
}

// expectAlive looks for the process whose number is in a file.
func expectAlive(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("process %d of the first run: %v", pid, err)
	}
}

func TestASecondRunInAStateDirectory(t *testing.T) {
	dir := t.TempDir()
	clk := clocktesting.NewFakeClock(time.Now())
	said := ""
	o := standalone.Options{StateDir: dir, Clock: clk, Say: func(line string) { said = line; clk.Step(sole.Wait) }}
	first, err := sole.Take(t.Context(), dir, "standalone.lock", sole.Waiting{Clock: clk})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Release() }()
	_, err = standalone.Run(t.Context(), o)
	who := fmt.Sprintf("process %d", os.Getpid())
	if err == nil || !strings.Contains(err.Error(), "another run uses the state directory "+dir) || !strings.Contains(err.Error(), who) {
		t.Errorf("error %v; want %s named", err, who)
	}
	if !strings.Contains(said, who) {
		t.Errorf("it said %q; want that it waits for %s", said, who)
	}
}

// A process whose former group has gone meanwhile, as the scope of a login session does, is put above it.
func TestAProcessWhoseGroupHasGone(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	o := options(t, fmt.Sprintf("backend: cfs\ncores: [%d]\nservers: [{name: test-gone, period: 100ms, runtime_low: 5ms, pid: %d}]", lastCore(t), child.Process.Pid))
	local, err := actuator.NewLocal(host.New("/"), actuator.IdentityCPU)
	if err != nil {
		t.Fatal(err)
	}
	top := fmt.Sprintf("/mainspring-test-%d", os.Getpid())
	scope := top + "/session.scope"
	if err := local.Make(scope); err != nil {
		t.Fatal(err)
	}
	before, err := local.Join(scope, child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := local.Back(child.Process.Pid, before)
		if err := errors.Join(err, local.Remove(scope), local.Remove(top)); err != nil {
			t.Error(err)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	o.Show = func(table.Report, time.Duration) {
		if err := local.Remove(scope); err != nil {
			t.Error(err)
		}
		stop()
	}
	var said []string
	o.Say = func(line string) { said = append(said, line) }
	if _, err := standalone.Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	if after := groupsOf(t, child.Process.Pid); !strings.Contains(after, ":cpu:"+top+"\n") || !strings.Contains(after, ":cpuset:"+top+"\n") {
		t.Errorf("afterwards the process is in\n%s; want %s", after, top)
	}
	if len(said) != 2 || !strings.Contains(said[0], scope+" of cpu, which has gone") {
		t.Errorf("it said %q; want where the process is now, in both hierarchies", said)
	}
	expectPutBack(t, "test-gone")
}
