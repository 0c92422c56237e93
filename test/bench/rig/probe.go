package rig

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/standalone"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/process"
)

// UnavailableError says why a backend does not work on this machine.
type UnavailableError struct{ Backend, Reason string }

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("backend %s does not work here: %s", e.Backend, e.Reason)
}

// Probe starts a fast path with a backend and a core, and returns what it reports of itself: the granularity that
// it measured, and the capacity. It returns an UnavailableError when the fast path does not take the backend.
func Probe(ctx context.Context, p Programs, backend string, core int, dir string) (table.Report, error) {
	log := filepath.Join(dir, "probe.log")
	child, err := process.Start(process.Command{Name: "fastpath", Path: p.Fastpath, Log: log, Args: []string{
		"--socket=" + standalone.Socket(dir), "--state-dir=" + dir, "--backend=" + backend, "--cores=" + strconv.Itoa(core),
	}})
	if err != nil {
		return table.Report{}, err
	}
	report, err := answer(ctx, client.New(standalone.Socket(dir)), child)
	if !child.Running() {
		return report, &UnavailableError{Backend: backend, Reason: lastLine(child.Tail())}
	}
	return report, errors.Join(err, child.Stop(stopTimeout))
}

// answer is the first report of a fast path that has just been started.
func answer(ctx context.Context, c *client.Client, child *process.Process) (table.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		report, err := c.Report(ctx)
		if err == nil {
			return report, nil
		}
		select {
		case <-child.Exited():
			return report, child.Died()
		case <-ctx.Done():
			return report, fmt.Errorf("waiting for the fast path: %w", errors.Join(err, ctx.Err()))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}
