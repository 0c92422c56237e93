package sole_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
)

func take(t *testing.T, dir string) *sole.Lock {
	t.Helper()
	lock, err := sole.Take(t.Context(), dir, "lock", sole.Waiting{Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func TestTheNextOneWaitsForTheFormer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	former := take(t, dir)
	clk := clocktesting.NewFakeClock(time.Now())
	told, taken := make(chan string, 2), make(chan error, 1)
	go func() {
		_, err := sole.Take(t.Context(), dir, "lock", sole.Waiting{Clock: clk, Begins: func(holder string) { told <- holder }})
		taken <- err
	}()
	if got, want := <-told, fmt.Sprintf("process %d", os.Getpid()); got != want {
		t.Errorf("it waits for %q; want %q", got, want)
	}
	if err := former.Release(); err != nil {
		t.Fatal(err)
	}
	clk.Step(sole.Step)
	if err := <-taken; err != nil {
		t.Error(err)
	}
}

func TestWhoWaitsTooLongIsToldForWhom(t *testing.T) {
	dir := t.TempDir()
	former := take(t, dir)
	defer func() { _ = former.Release() }()
	clk := clocktesting.NewFakeClock(time.Now())
	_, err := sole.Take(t.Context(), dir, "lock", sole.Waiting{Clock: clk, Begins: func(string) { clk.Step(sole.Wait) }})
	var held *sole.HeldError
	if !errors.As(err, &held) || held.Path != filepath.Join(dir, "lock") || held.Holder != fmt.Sprintf("process %d", os.Getpid()) {
		t.Errorf("error %v; want the holder named", err)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	dir := t.TempDir()
	former := take(t, dir)
	defer func() { _ = former.Release() }()
	ctx, stop := context.WithCancel(t.Context())
	_, err := sole.Take(ctx, dir, "lock", sole.Waiting{Clock: clocktesting.NewFakeClock(time.Now()), Begins: func(string) { stop() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want that of the context", err)
	}
}

// A holder that died before it wrote its number, or a file that something else wrote, is still a lock.
func TestAHolderThatCannotBeNamed(t *testing.T) {
	dir := t.TempDir()
	former := take(t, dir)
	defer func() { _ = former.Release() }()
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Now())
	_, err := sole.Take(t.Context(), dir, "lock", sole.Waiting{Clock: clk, Begins: func(string) { clk.Step(sole.Wait) }})
	var held *sole.HeldError
	if !errors.As(err, &held) || held.Holder != "another process" {
		t.Errorf("error %v; want it held by another process", err)
	}
}
