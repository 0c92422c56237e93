// Package process runs other programs as children that end when this process does, however it ends:
// the components of a local control plane, and the controller beside it.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Command is a program to run.
type Command struct {
	// Name of the program for messages, and what it sees as its own name.
	Name string
	// Path of the binary.
	Path string
	Args []string
	// Env of the program; nil means that of this process.
	Env []string
	// Log is the file that its output is appended to, readable by its owner only.
	Log string
	// Dir is the program's working directory; empty means the log's.
	Dir string
	// Files are the program's descriptors from 3 on.
	Files []*os.File
}

// Process is a running or ended child.
type Process struct {
	command  Command
	cmd      *exec.Cmd
	logStart int64         // where this life's lines begin
	exited   chan struct{} // closed when it has ended
	err      error         // how it ended; readable once exited is closed
}

// Start runs the command in a process group of its own, so that a terminal's Ctrl-C reaches only
// this process, which then stops its children in order.
func Start(c Command) (*Process, error) {
	out, err := os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", c.Name, err)
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", c.Name, err)
	}
	p := &Process{command: c, logStart: info.Size(), exited: make(chan struct{})}
	p.cmd = exec.Command(c.Path, c.Args...) //nolint:noctx // children are stopped in order, not all at once by a context
	p.cmd.Args[0] = c.Name
	p.cmd.Env = c.Env
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Dir = cmp.Or(c.Dir, filepath.Dir(c.Log))
	p.cmd.ExtraFiles = c.Files
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	return p, nil
}

// run starts the child and waits for it, on a thread of its own: Linux sends the parent-death signal
// when the thread that forked ends, not the process.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
	close(p.exited)
}

// Name is what the program is called in messages.
func (p *Process) Name() string { return p.command.Name }

// PID is the process ID of the child.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the child has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running tells whether the child lives.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Stop asks the child to end, and kills it when it has not after grace, which is an error.
func (p *Process) Stop(grace time.Duration) error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM and was killed", p.command.Name, grace)
	}
}

// Kill ends the child without warning, as a crash does, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only when it has ended
	<-p.exited
}

// Err waits for the end of the child and returns how it ended; nil is exit code 0.
func (p *Process) Err() error {
	<-p.exited
	return p.err
}

// Died is the error of a child that ended by itself: how, and the end of its log.
func (p *Process) Died() error {
	reason := "exit code 0"
	if err := p.Err(); err != nil {
		reason = err.Error()
	}
	return &DiedError{Name: p.command.Name, Reason: reason, Log: p.command.Log, Tail: p.Tail()}
}

// DiedError tells that a child ended by itself.
type DiedError struct {
	Name, Reason string
	// Log is the file, Tail the end of what this life of the child wrote to it.
	Log, Tail string
}

func (e *DiedError) Error() string {
	return fmt.Sprintf("%s ended by itself: %s; the end of %s:\n%s", e.Name, e.Reason, e.Log, e.Tail)
}

// tailBytes is how much of a log is repeated in an error.
const tailBytes = 3000

// Tail is the end of what the child wrote in this life, or why that cannot be read.
func (p *Process) Tail() string {
	tail, err := p.tail()
	if err != nil {
		return err.Error()
	}
	return tail
}

func (p *Process) tail() (string, error) {
	file, err := os.Open(p.command.Log)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	from := max(p.logStart, info.Size()-tailBytes)
	content, err := io.ReadAll(io.NewSectionReader(file, from, tailBytes))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(content)), nil
}

// AddressInUse tells whether err is that of a child that found its port taken.
func AddressInUse(err error) bool {
	var died *DiedError
	return errors.As(err, &died) && strings.Contains(died.Tail, "address already in use")
}
