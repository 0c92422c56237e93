package stack

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"
)

func script(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "controller")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, lines string) *process {
	t.Helper()
	p, err := startProcess(context.Background(), script(t, lines), nil, filepath.Join(t.TempDir(), "log"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestADeadControllerIsToldWithItsLastLines(t *testing.T) {
	t.Parallel()
	p := start(t, "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; done; exit 3\n")
	err := p.waitReady(context.Background(), "http://127.0.0.1:1/readyz")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "line 3\n") || strings.Contains(err.Error(), "line 2\n") {
		t.Errorf("got %v", err)
	}
	if err := p.stop(); err != nil {
		t.Errorf("stopping what has ended: %v", err)
	}
}

func TestStopAsksPolitely(t *testing.T) {
	t.Parallel()
	p := start(t, `trap 'echo bye; exit 0' TERM; while :; do read -r x < /dev/null; done`+"\n")
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	p := start(t, "exec tail -f /dev/null\n")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.waitReady(ctx, "http://127.0.0.1:1/readyz"); err == nil || !strings.Contains(err.Error(), "its log is") {
		t.Errorf("got %v", err)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

func TestControllerThatIsNotThere(t *testing.T) {
	t.Parallel()
	_, err := Options{Controller: "/nowhere/controller"}.controllerBinary(context.Background())
	if err == nil || !strings.Contains(err.Error(), `--controller "/nowhere/controller"`) || !strings.Contains(err.Error(), "want an executable file") {
		t.Errorf("got %v", err)
	}
}

func TestPortsDiffer(t *testing.T) {
	t.Parallel()
	ports, err := freePorts(context.Background(), 20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if seen[p] {
			t.Errorf("port %d twice", p)
		}
		seen[p] = true
	}
}
