package stack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/process"
)

func script(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "controller")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t *testing.T, lines string) *process.Process {
	t.Helper()
	p, err := process.Start(process.Command{Name: controllerProgram.title, Path: script(t, lines), Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestADeadControllerIsToldWithTheEndOfItsLog(t *testing.T) {
	t.Parallel()
	p := start(t, "echo the reason; exit 3\n")
	err := waitReady(context.Background(), clock.RealClock{}, p, "http://127.0.0.1:1/readyz")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("got %v", err)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	p := start(t, "exec tail -f /dev/null\n")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := waitReady(ctx, clock.RealClock{}, p, "http://127.0.0.1:1/readyz"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestControllerThatIsNotThere(t *testing.T) {
	t.Parallel()
	_, err := Options{}.binary(context.Background(), controllerProgram, "/nowhere/controller")
	if err == nil || !strings.Contains(err.Error(), `--controller "/nowhere/controller"`) || !strings.Contains(err.Error(), "want an executable file") {
		t.Errorf("got %v", err)
	}
}

func TestTheAgentsGetTheControllersCatalogue(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"":                        {"--log-level=debug", "--catalogue-file-x=y"},
		"--catalogue-file=a.yaml": {"--log-level=debug", "--catalogue-file=a.yaml"},
		"-catalogue-file a.yaml":  {"-catalogue-file", "a.yaml", "--log-level=debug"},
	} {
		if got := strings.Join(catalogueArgs(args), " "); got != want {
			t.Errorf("%q of %q, want %q", got, args, want)
		}
	}
}
