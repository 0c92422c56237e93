package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/test/timing"
)

// execProgram runs a test binary for `go test -exec` and records what it took. It returns the binary's exit code.
func execProgram(args []string) (int, error) {
	if len(args) < 2 {
		return 0, errors.New("exec: want the name of a step and a program with its arguments")
	}
	step, args := args[0], args[1:]
	// The kernel sends Pdeathsig when the thread that started the child ends: keep it.
	runtime.LockOSThread()
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // it ends with its child, which gets every signal
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting %s: %w", args[0], err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // one that has ended needs none
		}
	}()
	err := cmd.Wait()
	part := timing.Part{Kind: timing.Program, Step: step, Name: packageOf(args[0]), Wall: time.Since(began), CPU: childrenCPU()}
	if recorded := timing.Record(part); recorded != nil {
		fmt.Fprintln(os.Stderr, recorded)
	}
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return exitCode(ended), nil
	}
	return 0, err
}

// exitCode is that of a shell: 128 and the signal for a program that a signal has ended.
func exitCode(ended *exec.ExitError) int {
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return ended.ExitCode()
}

// packageOf names the package whose test binary runs: `go test` runs it in the package's directory.
func packageOf(binary string) string {
	dir, err := os.Getwd()
	if err != nil {
		return filepath.Base(binary)
	}
	for root := dir; root != filepath.Dir(root); root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
			continue
		}
		if name, err := filepath.Rel(root, dir); err == nil {
			return name
		}
	}
	return filepath.Base(binary)
}

// childrenCPU is the CPU time of all processes that this one, or one that it waited for, has waited for.
func childrenCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
