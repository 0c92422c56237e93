package toolchain_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// hangingGo puts a "go" first in PATH whose build prints what a build prints, writes half a
// binary, notes its process id in a file and hangs. It returns the file.
func hangingGo(t *testing.T) (path, pidFile string) {
	t.Helper()
	real, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	pidFile = filepath.Join(dir, "pid")
	script := fmt.Sprintf(`#!/bin/sh
[ "$1" = build ] || exec %s "$@"
while [ "$1" != -o ]; do shift; done
mkdir -p "$(dirname "$2")"
echo half > "$2"
echo 'go: downloading example.test/pin v1.2.3' >&2
echo example.test/greet/one >&2
echo example.test/greet/two >&2
echo $$ > %s.new
mv %s.new %s
exec sleep 600
`, real, pidFile, pidFile, pidFile)
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir + string(os.PathListSeparator) + os.Getenv("PATH"), pidFile
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return is(), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// readPID waits until the hanging build has started.
func readPID(t *testing.T, file string) int {
	t.Helper()
	var pid int
	eventually(t, "the build to start", func() bool {
		content, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
		return err == nil
	})
	return pid
}

// alive tells whether a process runs; one that ended and waits to be reaped does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z' && rest[0] != 'X'
}

func TestKilledBuildLeavesNothingInstalled(t *testing.T) {
	w := newWorkshop(t)
	path, pidFile := hangingGo(t)
	child, out := w.child(t)
	child.Env = append(child.Env, "PATH="+path)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := readPID(t, pidFile)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Fatalf("the child ended without the kill: %s", out)
	}
	eventually(t, "the orphaned build to end", func() bool { return !alive(pid) })
	for _, name := range w.entries(t) {
		if !strings.Contains(name, ".partial-") {
			t.Errorf("a killed build installed %s", name)
		}
	}

	expectOrigin(t, w.ensure(t), toolchain.Built)
	if left := w.entries(t); len(left) != 1 || strings.Contains(left[0], ".partial-") {
		t.Errorf("after the next build the cache holds %v, want one entry", left)
	}
}

// lockedBuffer is a buffer that is written and read by different goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestProgressTellsWhatIsBeingDone(t *testing.T) {
	w := newWorkshop(t)
	path, pidFile := hangingGo(t)
	t.Setenv("PATH", path)
	tc, _ := w.toolchain()
	progress, clock := &lockedBuffer{}, clocktesting.NewFakeClock(time.Now())
	tc.Progress, tc.Clock = progress, clock
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := tc.Ensure(ctx, "hello")
		ended <- err
	}()
	pid := readPID(t, pidFile)
	eventually(t, "a line about the second package", func() bool {
		clock.Step(10 * time.Second)
		return strings.Contains(progress.String(), "1 modules downloaded, 2 packages compiled, compiling example.test/greet/two")
	})

	cancel()
	if err := <-ended; err == nil {
		t.Error("a cancelled build succeeded")
	}
	if alive(pid) {
		t.Error("the cancelled build runs on")
	}
}

func TestWaitingForAnotherBuildIsTold(t *testing.T) {
	w := newWorkshop(t)
	path, pidFile := hangingGo(t)
	child, _ := w.child(t)
	child.Env = append(child.Env, "PATH="+path)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	readPID(t, pidFile)

	tc, _ := w.toolchain()
	progress := &lockedBuffer{}
	tc.Progress = progress
	ended := make(chan error, 1)
	go func() {
		_, err := tc.Ensure(t.Context(), "hello")
		ended <- err
	}()
	eventually(t, "the wait to be told", func() bool {
		return strings.Contains(progress.String(), "greet (hello, goodbye): waiting for another build of it")
	})
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // ended by the kill
	if err := <-ended; err != nil {
		t.Errorf("the waiting call did not build after the other was killed: %v", err)
	}
}
