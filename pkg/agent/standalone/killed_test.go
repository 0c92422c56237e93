package standalone_test

import (
	"bufio"
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// victim makes this test binary a run that is there to be killed. Its value is what it needs of the options.
const victim = "MAINSPRING_STANDALONE_TEST_VICTIM"

type needed struct {
	Text, Fastpath, StateDir string
	Launcher                 []string
}

func runVictim(text string) {
	var n needed
	err := errors.Join(json.Unmarshal([]byte(text), &n), os.Unsetenv(victim))
	file, bad := standalone.Parse([]byte(n.Text))
	shown := 0
	if err = errors.Join(err, bad); err == nil {
		_, err = standalone.Run(context.Background(), standalone.Options{
			File: file, Fastpath: n.Fastpath, Launcher: n.Launcher, StateDir: n.StateDir, Host: host.New("/"), Clock: clock.RealClock{},
			Say: func(string) {},
			Show: func(table.Report, time.Duration) {
				if shown++; shown == 2 { // a second after the commands were started
					fmt.Println("governs")
				}
			},
		})
	}
	fmt.Println(err)
	os.Exit(1)
}

// killRun runs a file and kills the run, and nothing else, when it governs and something was done.
func killRun(t *testing.T, o standalone.Options, text string, first func()) {
	t.Helper()
	data, err := json.Marshal(needed{text, o.Fastpath, o.StateDir, o.Launcher})
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command(o.Launcher[0])
	run.Env = append(os.Environ(), victim+"="+string(data))
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "governs\n" {
		t.Errorf("the run says %q, %v", line, err)
	}
	first()
	_ = run.Process.Kill()
	_ = run.Wait()
}

// The run after one that was killed, with another file or the same, finishes what that one could not, and starts
// its own commands in groups that have their budgets.
func TestARunAfterOneThatWasKilled(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "left")
	moved := exec.Command("sleep", "60")
	if err := moved.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = moved.Process.Kill(); _ = moved.Wait() })
	core := lastCore(t)
	head := fmt.Sprintf("backend: rtgroup\ncores: [%d]\ncharge_granularity: 150us\nservers:\n", core)
	first := head + fmt.Sprintf(`
- {name: test-first, criticality: High, period: 100ms, runtime_low: 5ms, runtime_hi: 10ms, policy: own, command: [sh, -c, "sleep 300 & echo $! > %s; wait"]}
- {name: test-moved, period: 100ms, runtime_low: 5ms, pid: %d}
`, mark, moved.Process.Pid)
	second := head + `
- {name: test-second, criticality: High, period: 200ms, runtime_low: 5ms, runtime_hi: 10ms, command: [sh, -c, "chrt -p $$ && sleep 0.8"]}
`
	o := options(t, second)
	before := groupsOf(t, moved.Process.Pid)
	hasStarted := func() { waitForPID(t, mark) } // a report is no sign that the shell has had its core
	for _, story := range []struct {
		text  string
		ready func()
	}{{first, hasStarted}, {second, func() {}}} {
		killRun(t, o, story.text, story.ready)
		last, err := standalone.Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(last.Servers) != 1 || last.Servers[0].BudgetUs < 5000 || last.Servers[0].Error != "" {
			t.Errorf("the next run ends with %+v", last.Servers)
		}
	}
	for _, name := range []string{"", "test-first", "test-moved", "test-second"} {
		expectPutBack(t, name)
	}
	if after := groupsOf(t, moved.Process.Pid); after != before {
		t.Errorf("the process that was moved is in\n%s; want\n%s", after, before)
	}
	if _, err := os.Stat(filepath.Join(o.StateDir, "undo.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is still noted to be undone: %v", err)
	}
	expectEnded(t, mark)
}

// The fast path dies, and with it the run, which cannot ask it to put anything back. The next run does, and governs.
func TestARunAfterOneWhoseFastPathDied(t *testing.T) {
	o := options(t, fmt.Sprintf("backend: rtgroup\ncores: [%d]\ncharge_granularity: 150us\nservers: [{name: test-died, criticality: High, period: 100ms, "+
		"runtime_low: 5ms, runtime_hi: 10ms, command: [sleep, \"1.2\"]}]", lastCore(t)))
	shown := 0
	o.Show = func(table.Report, time.Duration) {
		if shown++; shown != 2 {
			return
		}
		text, err := os.ReadFile(filepath.Join(o.StateDir, "fastpath.lock")) // who holds it
		var pid int
		if err == nil {
			_, err = fmt.Sscan(string(text), &pid)
		}
		if err = errors.Join(err, unix.Kill(pid, unix.SIGKILL)); err != nil {
			t.Error(err)
		}
	}
	if _, err := standalone.Run(t.Context(), o); err == nil {
		t.Error("the run does not say that its fast path died")
	}
	expectPutBack(t, "test-died")
	o.Show = func(table.Report, time.Duration) {}
	last, err := standalone.Run(t.Context(), o)
	if err != nil || len(last.Servers) != 1 || last.Servers[0].Error != "" || last.Servers[0].BudgetUs < 5000 {
		t.Errorf("the next run: %v, %+v", err, last.Servers)
	}
	expectPutBack(t, "test-died")
}

// waitForPID waits until a command has written a process's number into a file.
func waitForPID(t *testing.T, file string) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		text, err := os.ReadFile(file)
		return err == nil && strings.HasSuffix(string(text), "\n"), nil
	}); err != nil {
		t.Errorf("waiting for a process's number in %s: %v", file, err)
	}
}

// expectEnded looks for the process whose number is in a file.
func expectEnded(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(strings.TrimSpace(string(text)), &pid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d, which a command had left behind, is still there: %v", pid, err)
	}
}
