package localagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/process"
)

const (
	// startTimeout bounds the start of the fast path, which measures how exactly the kernel ends budgets.
	startTimeout = 2 * time.Minute
	probeEvery   = 100 * time.Millisecond
	probeTimeout = 5 * time.Second
	stopTimeout  = 20 * time.Second
)

// Binaries are the paths of both programs.
type Binaries struct{ FastPath, Agent string }

// Processes are both programs of an agent.
type Processes struct {
	fastPath, agent *process.Process
}

// Start starts the fast path and, once that answers, the agent. Their logs are in the directory.
func Start(ctx context.Context, clk clock.WithTicker, a Arguments, binaries Binaries, logs string) (*Processes, error) {
	if err := errors.Join(os.MkdirAll(logs, 0o700), os.MkdirAll(filepath.Dir(a.Socket), 0o700)); err != nil {
		return nil, fmt.Errorf("making the agent's directories: %w", err)
	}
	start := func(name, path string, args []string) (*process.Process, error) {
		return process.Start(process.Command{Name: name, Path: path, Args: args, Log: filepath.Join(logs, name+".log")})
	}
	p := &Processes{}
	var err error
	if p.fastPath, err = start(FastPath, binaries.FastPath, a.FastPath); err != nil {
		return nil, err
	}
	if err := p.awaitFastPath(ctx, clk, client.New(a.Socket)); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	if p.agent, err = start(Agent, binaries.Agent, a.Agent); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// awaitFastPath waits until the fast path reports.
func (p *Processes) awaitFastPath(ctx context.Context, clk clock.WithTicker, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ticker := clk.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		_, err := c.Report(probe)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.fastPath.Exited():
			return p.fastPath.Died()
		case <-ctx.Done():
			return fmt.Errorf("waiting for the fast path to answer: %w: %w; the end of its log:\n%s", context.Cause(ctx), err, p.fastPath.Tail())
		case <-ticker.C():
		}
	}
}

// Died returns how a program ended by itself, with the end of its log; nil while both run.
func (p *Processes) Died() error {
	for _, one := range []*process.Process{p.fastPath, p.agent} {
		if one != nil && !one.Running() {
			return one.Died()
		}
	}
	return nil
}

// Tail returns the end of the agent's log.
func (p *Processes) Tail() string { return p.agent.Tail() }

// Stop ends the agent, then the fast path.
func (p *Processes) Stop() error {
	var errs []error
	for _, one := range []*process.Process{p.agent, p.fastPath} {
		if one != nil && one.Running() {
			errs = append(errs, one.Stop(stopTimeout))
		}
	}
	return errors.Join(errs...)
}
