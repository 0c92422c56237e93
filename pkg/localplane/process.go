package localplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// process is a running component.
type process struct {
	tool     toolchain.Tool
	cmd      *exec.Cmd
	log      string
	logStart int64 // where its own lines begin
	stopping atomic.Bool
	exited   chan struct{} // closed when it has ended
	exitErr  error         // readable once exited is closed
}

// startProcess starts a component with its output appended to the log file.
func startProcess(s *spawner, c component, path, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", c.tool, err)
	}
	info, err := out.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the log of %s: %w", c.tool, err), out.Close())
	}
	p := &process{tool: c.tool, log: log, logStart: info.Size(), exited: make(chan struct{})}
	p.cmd = exec.Command(path, c.args...) //nolint:noctx // components are stopped in order, not all at once by a context
	p.cmd.Args[0] = string(c.tool)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Dir = filepath.Dir(log)
	if err := s.start(p.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", c.tool, err), out.Close())
	}
	go func() {
		p.exitErr = errors.Join(p.cmd.Wait(), out.Close())
		close(p.exited)
	}()
	return p, nil
}

// stop asks the process to end, and kills it when it has not after grace.
func (p *process) stop(grace time.Duration) {
	p.stopping.Store(true)
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	select {
	case <-p.exited:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// died is the error of a process that ended by itself, with the end of its log.
func (p *process) died() error {
	reason := "with exit code 0"
	if p.exitErr != nil {
		reason = p.exitErr.Error()
	}
	return &diedError{tool: p.tool, reason: reason, log: p.log, tail: logTail(p.log, p.logStart)}
}

// diedError tells that a component ended by itself.
type diedError struct {
	tool              toolchain.Tool
	reason, log, tail string
}

func (e *diedError) Error() string {
	return fmt.Sprintf("%s ended by itself: %s; the end of %s:\n%s", e.tool, e.reason, e.log, e.tail)
}

// addressInUse tells whether the component died because someone else took its port.
func addressInUse(err error) bool {
	var died *diedError
	return errors.As(err, &died) && strings.Contains(died.tail, "address already in use")
}

// tailBytes is how much of a log is repeated in an error.
const tailBytes = 3000

// logTail returns the end of the file, but nothing before start.
func logTail(path string, start int64) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(start, info.Size()-tailBytes)
	content, err := io.ReadAll(io.NewSectionReader(file, from, tailBytes))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(content))
}
