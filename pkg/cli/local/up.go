package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/cli/stack"
	"github.com/mainspring-rt/mainspring/pkg/cli/text"
)

const (
	// upTimeout bounds the start, including building everything on a machine that has never built it.
	upTimeout = 25 * time.Minute
	// downTimeout bounds the end, in which real nodes kill their containers one after the other.
	downTimeout = 5 * time.Minute
	// look is the pause between two looks at a state.
	look = 100 * time.Millisecond
	// serveCommand is how the background process is started; see Serve.
	serveCommand = "serve"
	// toldLines is how many lines of the log are told when the start fails.
	toldLines = 8
)

// Serve runs a stack in o.Dir and keeps its state file until the context ends or a part of the stack dies. It is the body
// of the background process.
func Serve(ctx context.Context, o stack.Options) error {
	s, err := stack.Start(ctx, o)
	if err != nil {
		return err
	}
	state := State{PID: os.Getpid(), Dir: s.Dir(), Kubeconfig: s.Kubeconfig(), ControllerLog: s.ControllerLog(), HollowLog: s.HollowLog(), RealNodes: s.RealNodes()}
	if err := state.write(); err != nil {
		return errors.Join(err, s.Stop())
	}
	died := s.Watch(ctx)
	return errors.Join(died, s.Stop(), os.Remove(statePath(state.Dir)))
}

// Settings say what Up starts.
type Settings struct {
	Dir        string // empty = a new directory below the system's temporary one
	Controller string // a controller binary; empty = built from the checkout
	Hollow     string // a binary of the simulated nodes' agents; empty = built from the checkout
	// ControllerArgs are added to the controller's arguments.
	ControllerArgs         []string
	NodeMonitorGracePeriod time.Duration // 0 = the default
	RealNodes              int
}

func (s Settings) arguments() []string {
	args := []string{"local", serveCommand, "--dir=" + s.Dir}
	if s.Controller != "" {
		args = append(args, "--controller="+s.Controller)
	}
	if s.Hollow != "" {
		args = append(args, "--hollow="+s.Hollow)
	}
	if s.NodeMonitorGracePeriod > 0 {
		args = append(args, "--node-monitor-grace-period="+s.NodeMonitorGracePeriod.String())
	}
	if s.RealNodes != 0 {
		args = append(args, fmt.Sprintf("--real-nodes=%d", s.RealNodes))
	}
	for _, a := range s.ControllerArgs {
		args = append(args, "--controller-arg="+a)
	}
	return args
}

// Up starts a cluster in a background process and returns when it is ready. When the context ends before, the process is
// stopped and its directory removed.
func Up(ctx context.Context, clk clock.WithTicker, s Settings, progress io.Writer) (State, error) {
	dir, err := prepareDir(s.Dir)
	if err != nil {
		return State{}, err
	}
	s.Dir = dir
	child, err := spawn(ctx, clk, s)
	if err != nil {
		return State{}, err
	}
	state, err := child.await(ctx, progress)
	if err != nil {
		return State{}, errors.Join(err, child.abandon())
	}
	return state, nil
}

// prepareDir makes the directory of a new cluster. Everything in it goes with the cluster, so it must hold nothing else.
func prepareDir(dir string) (string, error) {
	var err error
	if dir == "" {
		sweep(os.TempDir())
		dir, err = os.MkdirTemp("", temporaryPrefix)
	} else {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("making the cluster's directory: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("making the cluster's directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("making the cluster's directory: %w", err)
	}
	if len(entries) == 0 {
		return dir, nil
	}
	state, err := Read(dir)
	if err == nil {
		return "", fmt.Errorf("a local cluster runs in %s already (process %d); end it with: mainspring local down %s", dir, state.PID, dir)
	}
	if errors.Is(err, ErrEnded) {
		return "", fmt.Errorf("the local cluster of %s has ended; remove its files with: mainspring local down %s", dir, dir)
	}
	return "", fmt.Errorf("--dir %q is not empty; it must be empty or not exist, because all that is in it is removed with the cluster", dir)
}

// child is the background process as its parent sees it.
type child struct {
	dir     string
	log     string // path of what it prints
	clock   clock.WithTicker
	process *os.Process
	exited  chan struct{}
}

// spawn starts this very program in a session of its own, so that it outlives the terminal and the context.
func spawn(ctx context.Context, clk clock.WithTicker, s Settings) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the background process: %w", err)
	}
	path := logPath(s.Dir)
	log, err := createLog(path)
	if err != nil {
		return nil, fmt.Errorf("starting the background process: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, s.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the background process: %w", err)
	}
	c := &child{dir: s.Dir, log: path, clock: clk, process: cmd.Process, exited: make(chan struct{})}
	go func() {
		defer close(c.exited)
		_ = cmd.Wait() // how it ended is in its log
	}()
	return c, nil
}

// await waits for the state file, and passes the child's lines on.
func (c *child) await(ctx context.Context, progress io.Writer) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	ticker := c.clock.NewTicker(look)
	defer ticker.Stop()
	passed := 0
	for {
		passed = follow(c.log, passed, progress)
		if state, err := Read(c.dir); err == nil {
			return state, nil
		}
		select {
		case <-ctx.Done():
			return State{}, fmt.Errorf("waiting for the local cluster: %w", context.Cause(ctx))
		case <-c.exited:
			told, _ := os.ReadFile(c.log) // without it the error is shorter
			return State{}, fmt.Errorf("the local cluster did not start:\n%s", text.LastLines(string(told), toldLines))
		case <-ticker.C():
		}
	}
}

// follow passes on what a file has grown by, in whole lines.
func follow(path string, from int, out io.Writer) int {
	data, err := os.ReadFile(path)
	if err != nil || len(data) <= from {
		return from
	}
	end := strings.LastIndexByte(string(data), '\n') + 1
	if end <= from {
		return from
	}
	_, _ = out.Write(data[from:end]) // progress that cannot be shown is no failure
	return end
}

// abandon ends a child that did not get ready, and removes its directory.
func (c *child) abandon() error {
	_ = c.process.Signal(syscall.SIGTERM) // it may have ended already
	timer := c.clock.NewTimer(downTimeout)
	defer timer.Stop()
	select {
	case <-c.exited:
	case <-timer.C():
		_ = c.process.Kill()
		<-c.exited
	}
	return os.RemoveAll(c.dir)
}

// Down ends the cluster of a directory and removes the directory. It tells whether the cluster had ended already: then
// nothing is signalled, since its number may be another process's by now.
func Down(ctx context.Context, clk clock.WithTicker, dir string) (ended bool, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return false, fmt.Errorf("finding the cluster: %w", err)
	}
	state, err := Read(dir)
	ended = errors.Is(err, ErrEnded)
	if err != nil && !ended {
		return false, err
	}
	if !ended {
		if err := state.end(ctx, clk); err != nil {
			return false, err
		}
	}
	if err := os.RemoveAll(state.Dir); err != nil {
		return ended, fmt.Errorf("removing the cluster's directory: %w", err)
	}
	return ended, nil
}

// end stops the process and waits until it is gone.
func (s State) end(ctx context.Context, clk clock.WithTicker) error {
	if err := s.terminate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	ticker := clk.NewTicker(look)
	defer ticker.Stop()
	for s.alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for process %d to end: %w", s.PID, context.Cause(ctx))
		case <-ticker.C():
		}
	}
	return nil
}

// Wait returns nil when the context ends, or why the cluster ended before.
func (s State) Wait(ctx context.Context, clk clock.WithTicker) error {
	ticker := clk.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			if !s.alive() {
				told, _ := os.ReadFile(logPath(s.Dir)) // without it the error is shorter
				return fmt.Errorf("the local cluster ended by itself:\n%s", text.LastLines(string(told), toldLines))
			}
		}
	}
}
