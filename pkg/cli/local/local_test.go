package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/cli/local"
)

func TestNothingRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := local.Down(context.Background(), clock.RealClock{}, dir); !errors.Is(err, local.ErrNotRunning) {
		t.Errorf("got %v", err)
	}
}

// A state file left by a killed process, whose number another process has now, is not taken for a running cluster, so
// nobody else's process is ever stopped.
func TestAnotherProcessWithTheNumberIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := fmt.Sprintf(`{"pid": %d, "dir": %q}`, os.Getpid(), dir)
	if err := os.WriteFile(filepath.Join(dir, "mainspring-local.json"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := local.Down(context.Background(), clock.RealClock{}, dir); !errors.Is(err, local.ErrNotRunning) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("its directory is gone: %v", err)
	}
}

func TestBrokenState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mainspring-local.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := local.Read(dir); err == nil || errors.Is(err, local.ErrNotRunning) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}

func TestTellsHowToUseIt(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	local.State{PID: 7, Dir: "/d", Kubeconfig: "/d/kubeconfigs/admin", ControllerLog: "/d/logs/controller.log"}.Tell(&out, "kubectl")
	for _, want := range []string{"export KUBECONFIG=/d/kubeconfigs/admin\n", "mainspring local down /d\n", "process 7"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in %s", want, out.String())
		}
	}
}

// All of a cluster's directory is removed with it, so a directory with anything of the user's is refused, and left alone.
func TestUpRefusesADirectoryWithFilesInIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := local.Up(context.Background(), clock.RealClock{}, local.Settings{Dir: dir, Controller: "/nowhere"}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "--dir") || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "must be empty") {
		t.Errorf("got %v", err)
	}
	if content, err := os.ReadFile(precious); err != nil || string(content) != "mine" {
		t.Errorf("the file is %q, %v", content, err)
	}
}
