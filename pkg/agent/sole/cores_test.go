package sole_test

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

	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
)

// coresFile is what cores are locked by.
func coresFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cgroup.procs")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func takeCores(t *testing.T, path string, cores ...int) *sole.Lock {
	t.Helper()
	lock, err := sole.TakeCores(t.Context(), path, cores, sole.Waiting{Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// refusal is what becomes of who asks for cores of which one is held for too long.
func refusal(t *testing.T, path string, cores ...int) *sole.HeldError {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Now())
	_, err := sole.TakeCores(t.Context(), path, cores, sole.Waiting{Clock: clk, Begins: func(string) { clk.Step(sole.Wait) }})
	var held *sole.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("error %v; want a HeldError", err)
	}
	return held
}

func TestACoreIsOneProcesssOwn(t *testing.T) {
	path := coresFile(t)
	former := takeCores(t, path, 1, 2)
	if err := takeCores(t, path, 0, 3).Release(); err != nil {
		t.Errorf("cores that nobody has: %v", err)
	}
	if held, want := refusal(t, path, 3, 2), fmt.Sprintf("core 2, by its lock on %s", path); held.Path != want {
		t.Errorf("it is held up by %q; want %q", held.Path, want)
	}
	// The process opens and closes the file for another reason: the locks stay.
	if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
		t.Errorf("the file holds %q: %v; want nothing written to it", text, err)
	}
	if held := refusal(t, path, 1); !strings.HasPrefix(held.Path, "core 1,") {
		t.Errorf("it is held up by %q; want core 1", held.Path)
	}
	if err := former.Release(); err != nil {
		t.Fatal(err)
	}
	if err := takeCores(t, path, 1, 2).Release(); err != nil {
		t.Error(err)
	}
}

// Who waits for one of its cores has none of the others meanwhile: two that wait for each other would wait in vain.
func TestWhoWaitsForACoreHoldsNone(t *testing.T) {
	path := coresFile(t)
	former := takeCores(t, path, 2)
	clk := clocktesting.NewFakeClock(time.Now())
	waiting, taken := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := sole.TakeCores(t.Context(), path, []int{1, 2}, sole.Waiting{Clock: clk, Begins: func(string) { close(waiting) }})
		taken <- err
	}()
	select {
	case <-waiting:
	case err := <-taken:
		t.Fatalf("it does not wait: %v", err)
	}
	if err := errors.Join(takeCores(t, path, 1).Release(), former.Release()); err != nil {
		t.Fatal(err)
	}
	clk.Step(sole.Step)
	if err := <-taken; err != nil {
		t.Error(err)
	}
}

// holds is the environment variable by which this test's program holds a core until its input ends.
const holds = "MAINSPRING_TEST_HOLDS_CORE_OF"

func TestWhoHasACoreIsNamed(t *testing.T) {
	if path := os.Getenv(holds); path != "" {
		takeCores(t, path, 7)
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	path := coresFile(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestWhoHasACoreIsNamed$")
	child.Env = append(os.Environ(), holds+"="+path)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("held"))
	if _, err := io.ReadFull(out, said); err != nil || string(said) != "held" {
		t.Fatalf("the other process says %q: %v", said, err)
	}
	if held, want := refusal(t, path, 7), fmt.Sprintf("process %d", child.Process.Pid); held.Holder != want || !strings.HasPrefix(held.Error(), want+" holds core 7") {
		t.Errorf("error %q; want %s named", held, want)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	if err := takeCores(t, path, 7).Release(); err != nil {
		t.Errorf("the lock should have ended with its process: %v", err)
	}
}

func TestCoresWithoutTheirFile(t *testing.T) {
	_, err := sole.TakeCores(t.Context(), filepath.Join(t.TempDir(), "cgroup.procs"), []int{1}, sole.Waiting{Clock: clock.RealClock{}})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v; want that there is no file", err)
	}
	if err := (*sole.Lock)(nil).Release(); err != nil {
		t.Error(err)
	}
}
