package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// running starts a process that looks like the one that serves dir, and gives it and a way to kill it.
func running(t *testing.T, dir string, log *os.File) (pid int, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read line", "sh", "--dir="+dir, "")
	cmd.Stdout = log
	if _, err := cmd.StdinPipe(); err != nil { // never written to, so that the process waits
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Start returns when exec has closed what is to be closed, which is before the process has its arguments.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
		if strings.Contains(string(line), dir) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the process has %q for its arguments: %v", line, err)
		}
	}
	return cmd.Process.Pid, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}
}

func makeDir(t *testing.T, temp, name string, files ...string) string {
	t.Helper()
	dir := filepath.Join(temp, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// remain says which of the directories are there, in letters.
func remain(dirs ...string) string {
	var there []string
	for _, d := range dirs {
		if _, err := os.Stat(d); err == nil {
			there = append(there, filepath.Base(d))
		} else if !errors.Is(err, os.ErrNotExist) {
			there = append(there, err.Error())
		}
	}
	return strings.Join(there, " ")
}

// Only what a killed cluster left goes: not a running one, not one that starts, nothing that has no file of ours.
func TestSweepRemovesOnlyWhatDeadClustersLeft(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	up := makeDir(t, temp, "mainspring-local-up")
	starting := makeDir(t, temp, "mainspring-local-starting")
	foreign := makeDir(t, temp, "mainspring-local-foreign", "precious")
	other := makeDir(t, temp, "other", "mainspring-local.log")
	log, err := createLog(logPath(starting))
	if err != nil {
		t.Fatal(err)
	}
	upPID, killUp := running(t, up, nil)
	defer killUp()
	_, killStarting := running(t, starting, log)
	defer killStarting()
	if err := errors.Join(log.Close(), State{PID: upPID, Dir: up}.write()); err != nil {
		t.Fatal(err)
	}
	sweep(temp)
	if got := remain(up, starting, foreign, other); got != "mainspring-local-up mainspring-local-starting mainspring-local-foreign other" {
		t.Errorf("while they run there remain %s", got)
	}
	killUp()
	killStarting()
	// A process that another test has forked holds the lock, too, until it executes its program.
	got := ""
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		sweep(temp)
		got = remain(up, starting, foreign, other)
		return got == "mainspring-local-foreign other", nil
	}); err != nil {
		t.Errorf("after they were killed there remain %s", got)
	}
}

func TestListTellsTheRunningClusters(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	up, dead := makeDir(t, temp, "mainspring-local-up"), makeDir(t, temp, "mainspring-local-dead")
	pid, kill := running(t, up, nil)
	defer kill()
	if err := errors.Join(State{PID: pid, Dir: up, Kubeconfig: "/k"}.write(), State{PID: os.Getpid(), Dir: dead}.write()); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	TellAll(&out, List(temp))
	if !strings.Contains(out.String(), fmt.Sprint(pid)) || !strings.Contains(out.String(), up) || !strings.Contains(out.String(), "/k") || strings.Contains(out.String(), dead) {
		t.Errorf("got %s", out.String())
	}
	out.Reset()
	TellAll(&out, nil)
	if out.String() != "no local cluster runs in a temporary directory\n" {
		t.Errorf("got %s", out.String())
	}
}
