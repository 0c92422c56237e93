package environment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/process"
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
	child    *process.Process
	began    time.Time
	expected atomic.Bool // set before the test ends it
}

func newController(ctx context.Context, binary, kubeconfig, dir string) (*Controller, error) {
	// They must stay free over every life of the controller.
	ports, err := process.FreePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	return &Controller{
		health:     ports[0],
		metrics:    ports[1],
		binary:     binary,
		kubeconfig: kubeconfig,
		logPath:    filepath.Join(dir, "controller.log"),
		environ:    append(withoutKubeconfig(os.Environ()), "KUBECONFIG="+kubeconfig, "GORACE=halt_on_error=0"),
	}, nil
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
	child, err := process.Start(process.Command{
		Name: "the controller", Path: c.binary, Args: c.args(flags), Env: c.environ, Log: c.logPath,
	})
	if err != nil {
		return err
	}
	c.run, c.flags = &run{child: child, began: time.Now()}, flags
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
		case <-c.run.child.Exited():
			c.run.expected.Store(true) // the caller is told here; no spec needs to hear it again
			return fmt.Errorf("waiting for the controller to be ready: %w", c.run.child.Died())
		case <-ctx.Done():
			return fmt.Errorf("the controller is not ready after %s (%w):\n%s", readyTimeout, err, c.run.child.Tail())
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
	if err := c.run.child.Stop(stopTimeout); err != nil {
		return fmt.Errorf("%w:\n%s", err, c.run.child.Tail())
	}
	if err := c.run.child.Err(); err != nil {
		return fmt.Errorf("the controller did not stop gracefully: %w:\n%s", err, c.run.child.Tail())
	}
	return nil
}

// Kill9 ends the controller without warning, as a crash does, and waits until it is gone.
func (c *Controller) Kill9() {
	if !c.Running() {
		return
	}
	c.run.expected.Store(true)
	c.run.child.Kill()
}

// Running tells whether the process lives.
func (c *Controller) Running() bool { return c.run != nil && c.run.child.Running() }

// Crash returns how the controller ended when nobody had asked it to; nil otherwise.
func (c *Controller) Crash() error {
	if c.run == nil || c.Running() || c.run.expected.Load() {
		return nil
	}
	return c.run.child.Died()
}

// PID is the process ID of the current or last life.
func (c *Controller) PID() int { return c.run.child.PID() }

// Flags are those of the current or last life.
func (c *Controller) Flags() []string { return c.flags }
