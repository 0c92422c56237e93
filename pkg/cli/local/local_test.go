package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/cli/local"
)

func TestNothingRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := local.Down(context.Background(), clock.RealClock{}, dir); !errors.Is(err, local.ErrNotRunning) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("a directory that is no cluster's is gone: %v", err)
	}
}

// writeState writes the state file of a cluster of dir into a directory.
func writeState(t *testing.T, into string, pid int, dir string) {
	t.Helper()
	state := fmt.Sprintf(`{"pid": %d, "dir": %q}`, pid, dir)
	if err := os.WriteFile(filepath.Join(into, "mainspring-local.json"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A state file left by a killed process, whose number another process has now, is not taken for a running cluster: the
// other process is left alone, and what the dead cluster left goes.
func TestAnotherProcessWithTheNumberIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cluster")
	if err := os.MkdirAll(filepath.Join(dir, "etcd"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeState(t, dir, os.Getpid(), dir) // a signal would end the tests
	if ended, err := local.Down(context.Background(), clock.RealClock{}, dir); err != nil || !ended {
		t.Errorf("ended already: %v, %v", ended, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
}

// A state file that was copied says nothing of the directory it is in.
func TestTheStateOfAnotherDirectoryIsNotFollowed(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	writeState(t, dir, os.Getpid(), other)
	if _, err := local.Down(context.Background(), clock.RealClock{}, dir); !errors.Is(err, local.ErrNotRunning) || errors.Is(err, local.ErrEnded) {
		t.Errorf("got %v", err)
	}
	for _, d := range []string{dir, other} {
		if _, err := os.Stat(d); err != nil {
			t.Errorf("%s is gone: %v", d, err)
		}
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

// Only real nodes run images, and nothing is imported where an archive is missing.
func TestImportNeedsRealNodesAndArchives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := local.Import(context.Background(), dir, "/nowhere/ctr", []string{"x.tar"}, io.Discard)
	if !errors.Is(err, local.ErrNotRunning) {
		t.Errorf("without a cluster: %v", err)
	}
	for _, test := range []struct{ nodes, want string }{
		{`[]`, "it has no real nodes"},
		{`[{"name": "real-1", "runtimeSocket": "/nowhere/containerd.sock"}]`, "want an OCI archive"},
	} {
		alive := runningCluster(t, test.nodes)
		err := local.Import(context.Background(), alive, "/nowhere/ctr", []string{filepath.Join(dir, "missing.tar")}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("nodes %s: %v, want %q", test.nodes, err, test.want)
		}
	}
}

// runningCluster is the directory of a cluster whose process is a child of the test, with these real nodes.
func runningCluster(t *testing.T, nodes string) string {
	t.Helper()
	dir := t.TempDir()
	serve := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read line", "sh", "--dir="+dir, "end")
	input, err := serve.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = input.Close(); _ = serve.Wait() }) // the shell ends with its input
	state := fmt.Sprintf(`{"pid": %d, "dir": %q, "realNodes": %s}`, serve.Process.Pid, dir, nodes)
	if err := os.WriteFile(filepath.Join(dir, "mainspring-local.json"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
