package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/test/batch"
)

// step is one that runs. It writes what its programs print, line by line and, where lanes run beside each other, with the name of its lane.
type step struct {
	results *results
	name    string
	lane    lane
	began   time.Time
	// cpu is the CPU time of the commands that have ended, and of all that they waited for.
	cpu     time.Duration
	partial bytes.Buffer // of a line
}

// step runs and times one.
func (r *results) step(ctx context.Context, p plannedStep, l lane) error {
	s := &step{results: r, name: p.name, lane: l, began: time.Now()}
	before := readMachine()
	r.mu.Lock()
	r.running = append(r.running, s)
	r.mu.Unlock()
	r.print("=== %s", p.name)
	err := p.do(ctx, s)
	took := stepTime{name: p.name, wall: time.Since(s.began), cpu: s.cpu, used: readMachine().since(before), failed: err != nil}
	r.mu.Lock()
	s.flush()
	r.steps = append(r.steps, took)
	r.running = slices.DeleteFunc(r.running, func(other *step) bool { return other == s })
	r.mu.Unlock()
	r.print("=== %s took %s s", p.name, seconds(took.wall))
	return err
}

// Write prints whole lines. It keeps the beginning of one that is not whole for the next call, or for the next report of progress.
func (s *step) Write(p []byte) (int, error) {
	s.results.mu.Lock()
	defer s.results.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		s.partial.WriteString(line)
		if strings.HasSuffix(line, "\n") {
			s.flush()
		}
	}
	return len(p), nil
}

// flush prints what there is of a line. The caller has the lock.
func (s *step) flush() {
	if s.partial.Len() == 0 {
		return
	}
	prefix := ""
	if s.lane.name != "" {
		prefix = s.lane.name + " | "
	}
	fmt.Fprintf(s.results.out, "%s%s\n", prefix, strings.TrimSuffix(s.partial.String(), "\n"))
	s.results.printed = time.Now()
	s.partial.Reset()
}

// silentFor is how long the user hears nothing of a step before it reports that it runs.
const silentFor = 10 * time.Second

// reportProgress tells of steps that print nothing. The function that it returns ends it.
func (r *results) reportProgress() (stop func()) {
	ended := make(chan struct{})
	ticker := time.NewTicker(silentFor / 4)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				r.reportSilence()
			}
		}
	}()
	return func() { close(ended) }
}

// reportSilence prints one line when no step has printed any for long.
func (r *results) reportSilence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, s := range r.running {
		names = append(names, fmt.Sprintf("%s for %s s", s.name, seconds(time.Since(s.began))))
	}
	if len(names) == 0 || time.Since(r.printed) < silentFor*3/4 {
		return
	}
	for _, s := range r.running {
		s.flush()
	}
	r.printed = time.Now()
	fmt.Fprintf(r.out, "... %s: %s\n", time.Since(r.began).Round(time.Second), strings.Join(names, ", "))
}

// start starts a command with the scheduling policy of the step's lane.
func (s *step) start(cmd *exec.Cmd) error {
	if s.lane.scheduling {
		return cmd.Start()
	}
	return batch.Start(cmd)
}

// command runs a program, with more of an environment, whose output is the step's. It is a process group of its own, because `go run` passes no
// signal on: an interrupt goes to all of the group, and what has not ended a minute later is killed.
func (s *step) command(ctx context.Context, env []string, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = s, s
	cmd.Env = slices.Concat(os.Environ(), s.results.environ(), env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	err := s.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // there may be nothing left of it
	}
	if cmd.ProcessState != nil {
		s.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), cmp.Or(ctx.Err(), err))
	}
	return nil
}
