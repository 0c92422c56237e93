package environment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// readyTimeout bounds how long a started controller may take until it says that it is ready.
	readyTimeout = 2 * time.Minute
	// stopTimeout bounds how long a controller may take to end after SIGTERM.
	stopTimeout = time.Minute
	// probeEvery is the pause between two readiness probes.
	probeEvery = 50 * time.Millisecond
)

// Controller is the controller binary run as a process of its own.
type Controller struct {
	binary, kubeconfig, logPath string
	health, metrics             int // ports
	environ                     []string
	exact                       bool // the flags name the ports already
	flags                       []string
	run                         *run
}

// run is one life of the process.
type run struct {
	pid      int
	began    time.Time
	exited   chan struct{}
	err      error       // how it ended; valid once exited is closed
	expected atomic.Bool // set before the test ends it
}

func newController(binary, kubeconfig, dir string) (*Controller, error) {
	c := &Controller{
		binary:     binary,
		kubeconfig: kubeconfig,
		logPath:    filepath.Join(dir, "controller.log"),
		environ:    append(withoutKubeconfig(os.Environ()), "KUBECONFIG="+kubeconfig, "GORACE=halt_on_error=0"),
	}
	for _, port := range []*int{&c.health, &c.metrics} {
		var err error
		if *port, err = freePort(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Start runs the controller with the flags and waits until it is ready.
func (c *Controller) Start(ctx context.Context, flags ...string) error {
	if c.Running() {
		return errors.New("starting the controller: it runs already")
	}
	if err := c.launch(flags); err != nil {
		return err
	}
	return c.waitReady(ctx)
}

// launch runs the controller and does not wait.
func (c *Controller) launch(flags []string) error {
	log, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the controller's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(c.binary, c.args(flags)...)
	cmd.Env = c.environ
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r, err := start(cmd)
	if err != nil {
		return err
	}
	c.run, c.flags = r, flags
	return nil
}

// args are the flags with the ports, where the flags do not name them.
func (c *Controller) args(flags []string) []string {
	if c.exact {
		return flags
	}
	return append([]string{
		fmt.Sprintf("--health-probe-port=%d", c.health),
		fmt.Sprintf("--metrics-port=%d", c.metrics),
	}, flags...)
}

// start runs cmd on a thread that lives as long as it does: the kernel sends the parent-death signal
// when the starting thread ends, not the process.
func start(cmd *exec.Cmd) (*run, error) {
	r := &run{exited: make(chan struct{}), began: time.Now()}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			r.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			r.err = cmd.Wait()
			close(r.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	return r, nil
}

func withoutKubeconfig(env []string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, "KUBECONFIG=") {
			kept = append(kept, e)
		}
	}
	return kept
}

func (c *Controller) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := c.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.run.exited:
			c.run.expected.Store(true) // the caller is told here; no spec needs to hear it again
			return fmt.Errorf("the controller ended before it was ready: %w:\n%s", c.ending(), c.tail(20))
		case <-ctx.Done():
			return fmt.Errorf("the controller is not ready after %s (%w):\n%s", readyTimeout, err, c.tail(20))
		case <-time.After(probeEvery):
		}
	}
}

func (c *Controller) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", c.health), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", resp.Status)
	}
	return nil
}

// Stop asks the controller to end and fails when it does not end by itself with exit code 0.
func (c *Controller) Stop() error {
	if !c.Running() {
		return nil
	}
	c.run.expected.Store(true)
	if err := syscall.Kill(c.run.pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping the controller: %w", err)
	}
	select {
	case <-c.run.exited:
	case <-time.After(stopTimeout):
		c.Kill9()
		return fmt.Errorf("the controller did not stop within %s of SIGTERM:\n%s", stopTimeout, c.tail(20))
	}
	if c.run.err != nil {
		return fmt.Errorf("the controller did not stop gracefully: %w:\n%s", c.run.err, c.tail(20))
	}
	return nil
}

// Kill9 ends the controller without warning, as a crash does, and waits until it is gone.
func (c *Controller) Kill9() {
	if !c.Running() {
		return
	}
	c.run.expected.Store(true)
	_ = syscall.Kill(c.run.pid, syscall.SIGKILL) // it may have ended by itself meanwhile
	<-c.run.exited
}

// Running tells whether the process lives.
func (c *Controller) Running() bool {
	if c.run == nil {
		return false
	}
	select {
	case <-c.run.exited:
		return false
	default:
		return true
	}
}

// Crash returns how the controller ended when nobody had asked it to; nil otherwise.
func (c *Controller) Crash() error {
	if c.run == nil || c.Running() || c.run.expected.Load() {
		return nil
	}
	return fmt.Errorf("the controller ended by itself: %w:\n%s", c.ending(), c.tail(40))
}

// ending is how the process ended; exit code 0 is an error too when nobody had asked for the end.
func (c *Controller) ending() error {
	if c.run.err == nil {
		return errors.New("exit status 0")
	}
	return c.run.err
}

// PID is the process ID of the current or last life.
func (c *Controller) PID() int { return c.run.pid }

// Flags are those of the current or last life.
func (c *Controller) Flags() []string { return c.flags }
