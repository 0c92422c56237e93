package environment

import (
	"context"
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
	// readyTimeout bounds how long a started program may take until it says that it is ready.
	readyTimeout = 2 * time.Minute
	// stopTimeout bounds how long a program may take to end after SIGTERM.
	stopTimeout = time.Minute
	// probeEvery is the pause between two readiness probes.
	probeEvery = 50 * time.Millisecond
)

// Program is the controller, or the agents of simulated nodes, run as a process of its own.
type Program struct {
	name, binary, kubeconfig, logPath string
	health, metrics                   int // ports
	environ                           []string
	exact                             bool // the flags name the ports already
	flags                             []string
	run                               *run
}

// run is one life of the process.
type run struct {
	child    *process.Process
	began    time.Time
	expected atomic.Bool // set before the test ends it
}

// newProgram prepares a program that logs to a file of its name in dir.
func newProgram(ctx context.Context, binary, kubeconfig, dir string) (*Program, error) {
	// They must stay free over every life of the program.
	ports, err := process.FreePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(binary)
	return &Program{
		name:       name,
		health:     ports[0],
		metrics:    ports[1],
		binary:     binary,
		kubeconfig: kubeconfig,
		logPath:    filepath.Join(dir, name+".log"),
		environ:    append(withoutKubeconfig(os.Environ()), "KUBECONFIG="+kubeconfig, "GORACE=halt_on_error=0"),
	}, nil
}

// Start runs the program with the flags and waits until it is ready.
func (p *Program) Start(ctx context.Context, flags ...string) error {
	if p.Running() {
		return fmt.Errorf("starting the %s: it runs already", p.name)
	}
	if err := p.launch(flags); err != nil {
		return err
	}
	return p.waitReady(ctx)
}

// launch runs the program and does not wait.
func (p *Program) launch(flags []string) error {
	child, err := process.Start(process.Command{
		Name: "the " + p.name, Path: p.binary, Args: p.args(flags), Env: p.environ, Log: p.logPath,
	})
	if err != nil {
		return err
	}
	p.run, p.flags = &run{child: child, began: time.Now()}, flags
	return nil
}

// args are the flags with the ports, where the flags do not name them.
func (p *Program) args(flags []string) []string {
	if p.exact {
		return flags
	}
	return append([]string{
		fmt.Sprintf("--health-probe-port=%d", p.health),
		fmt.Sprintf("--metrics-port=%d", p.metrics),
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

func (p *Program) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := p.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.run.child.Exited():
			p.run.expected.Store(true) // the caller is told here; no spec needs to hear it again
			return fmt.Errorf("waiting for the %s to be ready: %w", p.name, p.run.child.Died())
		case <-ctx.Done():
			return fmt.Errorf("the %s is not ready after %s (%w):\n%s", p.name, readyTimeout, err, p.run.child.Tail())
		case <-time.After(probeEvery):
		}
	}
}

func (p *Program) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", p.health), nil)
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

// Stop asks the program to end and fails when it does not end by itself with exit code 0.
func (p *Program) Stop() error {
	if !p.Running() {
		return nil
	}
	p.run.expected.Store(true)
	if err := p.run.child.Stop(stopTimeout); err != nil {
		return fmt.Errorf("%w:\n%s", err, p.run.child.Tail())
	}
	if err := p.run.child.Err(); err != nil {
		return fmt.Errorf("the %s did not stop gracefully: %w:\n%s", p.name, err, p.run.child.Tail())
	}
	return nil
}

// Kill9 ends the program without warning, as a crash does, and waits until it is gone.
func (p *Program) Kill9() {
	if !p.Running() {
		return
	}
	p.run.expected.Store(true)
	p.run.child.Kill()
}

// Running tells whether the process lives.
func (p *Program) Running() bool { return p.run != nil && p.run.child.Running() }

// Crash returns how the program ended when nobody had asked it to; nil otherwise.
func (p *Program) Crash() error {
	if p.run == nil || p.Running() || p.run.expected.Load() {
		return nil
	}
	return p.run.child.Died()
}

// PID is the process ID of the current or last life.
func (p *Program) PID() int { return p.run.child.PID() }

// Flags are those of the current or last life.
func (p *Program) Flags() []string { return p.flags }
