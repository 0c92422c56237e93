package node_test

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

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/node"
	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// hold is what another fast path does with a state directory.
func hold(t *testing.T, dir string) *sole.Lock {
	t.Helper()
	lock, err := node.Alone(t.Context(), node.Settings{StateDir: dir, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func TestASecondFastPathSaysWhoIsFirst(t *testing.T) {
	dir := t.TempDir()
	former := hold(t, dir)
	defer func() { _ = former.Release() }()
	clk := clocktesting.NewFakeClock(time.Now())
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := node.Alone(ctx, node.Settings{StateDir: dir, Clock: clk})
		ended <- err
	}()
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-ended:
			waiting = false
		case <-time.After(time.Millisecond):
			clk.Step(sole.Step)
		}
	}
	for _, want := range []string{"--state-dir " + dir, fmt.Sprintf("process %d holds %s", os.Getpid(), filepath.Join(dir, "fastpath.lock"))} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want it to say %q", err, want)
		}
	}
}

// A fast path that starts while the former still ends touches nothing of its, and begins once that has gone.
func TestAFastPathWaitsForTheFormer(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.RTGroups, privileged.BTF)
	p := newProcess(t, "cfs")
	former := hold(t, p.state)
	privileged.Machine(t)
	p.command = exec.CommandContext(t.Context(), p.program, p.flags()...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p.command.Stderr = log
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.command.Process.Kill(); _ = p.command.Wait() })
	p.eventually("it to say for whom it waits", func() error {
		text, err := os.ReadFile(log.Name())
		if err == nil && !strings.Contains(string(text), fmt.Sprintf(`holder="process %d"`, os.Getpid())) {
			err = fmt.Errorf("it says %q", text)
		}
		return err
	})
	for _, file := range []string{"actuator.journal", "backend.json", "table.json"} {
		if _, err := os.Stat(filepath.Join(p.state, file)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s while the former ends: %v", file, err)
		}
	}
	if err := former.Release(); err != nil {
		t.Fatal(err)
	}
	p.eventually("it to answer", func() error { _, err := p.Report(t.Context()); return err })
}
