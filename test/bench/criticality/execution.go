package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/test/bench/rig"
)

// execution is a set that is about to run.
type execution struct {
	bench bench
	dir   string
	set   set
	start int64 // of the first jobs
	// chargeUs to every budget.
	chargeUs int64
}

// scheduling of a task: its policy, and the core that it stays on; -1 where the backend sees to that.
type scheduling struct {
	policy string
	core   int
}

// schedulingOf tasks under a backend. A thread that is pinned cannot become SCHED_DEADLINE, which that backend makes
// it; a real-time one is not held by a quota of CFS.
func (e execution) schedulingOf(backend string) scheduling {
	switch backend {
	case actuator.Deadline:
		return scheduling{"other", -1}
	case actuator.CFS:
		return scheduling{"other", e.bench.core}
	}
	return scheduling{"fifo", e.bench.core}
}

// task is the command of a server's task.
func (e execution) task(i int, how scheduling) []string {
	server, us := e.set.servers[i], func(us int64) string { return strconv.FormatInt(us, 10) + "us" }
	d := e.set.demand(server)
	return []string{
		e.bench.programs.Task, "--name=" + server.ID, "--period=" + us(server.Period), "--work-least=" + us(d.Least/1000), "--work=" + us(d.Most/1000),
		"--overrun=" + strconv.FormatFloat(d.Probability, 'g', -1, 64), "--overrun-least=" + us(d.OverrunLeast/1000), "--overrun-most=" + us(d.OverrunTo/1000),
		"--burst=" + us(int64(d.Burst)*server.Period), "--burst-every=" + us(int64(d.BurstEvery)*server.Period),
		"--start=" + strconv.FormatInt(e.start, 10), "--seed=" + strconv.FormatUint(e.set.seed*1000+uint64(i), 10),
		"--duration=" + e.bench.duration().String(), "--grace=" + grace.String(),
		"--policy=" + how.policy, "--priority=" + strconv.Itoa(server.Priority), "--core=" + strconv.Itoa(how.core), "--log=" + logOf(e.dir, server.ID),
	}
}

// plainly runs the tasks as ordinary threads.
func (e execution) plainly(ctx context.Context) error {
	var running []*process.Process
	defer func() {
		for _, child := range running {
			child.Kill()
		}
	}()
	for i, server := range e.set.servers {
		command := e.task(i, scheduling{"other", e.bench.core})
		child, err := process.Start(process.Command{Name: server.ID, Path: command[0], Args: command[1:], Log: filepath.Join(e.dir, server.ID+".log")})
		if err != nil {
			return err
		}
		running = append(running, child)
	}
	for _, child := range running {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-child.Exited():
			if child.Err() != nil {
				return child.Died()
			}
		}
	}
	return nil
}

// file is what the agent is told.
func (e execution) file(backend, configuration string) rig.File {
	f := rig.File{Backend: backend, Cores: strconv.Itoa(e.bench.core), Granularity: strconv.FormatInt(e.chargeUs, 10) + "us"}
	for i, server := range e.set.servers {
		entry := rig.Server{
			Name: server.ID, Criticality: server.Criticality.String(), Period: server.Period, Low: server.Low, High: server.High,
			Core: e.bench.core, Policy: "own", Command: e.task(i, e.schedulingOf(backend)),
		}
		if backend != actuator.FIFO { // there the agent gives priorities, the same ones, and wants none
			entry.Priority = server.Priority
		}
		switch configuration {
		case static:
			entry.High = entry.Low
		case reserved:
			entry.Mode = table.Reserved
		}
		f.Servers = append(f.Servers, entry)
	}
	return f
}

// governed runs the tasks under the agent, and returns what it did since their first jobs: before, tasks use up
// budgets by starting.
func (e execution) governed(ctx context.Context, backend, configuration string) (deeds, []snapshot, error) {
	agent, err := rig.Start(ctx, e.bench.programs, e.file(backend, configuration), e.dir)
	if err != nil {
		return deeds{}, nil, err
	}
	before, seen, err := e.watch(ctx, agent)
	if err = errors.Join(err, agent.Wait(ctx)); err != nil {
		return deeds{}, nil, err
	}
	last, err := agent.Last()
	if err != nil {
		return deeds{}, nil, err
	}
	return deedsOf(last).since(deedsOf(before)), seen, trustworthy(last)
}

// snapshot is what was in force at a time: budgets in microseconds, as set.servers.
type snapshot struct {
	At      int64   `json:"at_ms"` // since the first jobs
	Budgets []int64 `json:"budgets_us"`
}

// watchEvery is how often budgets are looked at.
const watchEvery = 100 * time.Millisecond

// watch returns what the agent says when the first jobs are released, and of a set that squeezes what is in force until
// the last ones are.
func (e execution) watch(ctx context.Context, agent *rig.Agent) (table.Report, []snapshot, error) {
	if err := rig.Until(ctx, e.start); err != nil {
		return table.Report{}, nil, errors.Join(err, agent.Stop())
	}
	first, err := agent.Client.Report(ctx)
	if err != nil {
		return first, nil, errors.Join(fmt.Errorf("asking the agent: %w", err), agent.Stop())
	}
	if !e.set.kind.squeezes {
		return first, nil, nil
	}
	return first, e.look(ctx, agent), nil
}

// look takes snapshots until the last jobs are released, or the agent has stopped, which whoever waits for it tells.
func (e execution) look(ctx context.Context, agent *rig.Agent) []snapshot {
	var out []snapshot
	end := e.start + e.bench.duration().Nanoseconds()
	for at := e.start; at < end && rig.Until(ctx, at) == nil; at += watchEvery.Nanoseconds() {
		if report, err := agent.Client.Report(ctx); err == nil {
			out = append(out, snapshot{At: (at - e.start) / 1e6, Budgets: e.budgets(report)})
		}
	}
	return out
}

func (e execution) budgets(r table.Report) []int64 {
	out := make([]int64, len(e.set.servers))
	for _, s := range r.Servers {
		for i, server := range e.set.servers {
			if s.ID == server.ID {
				out[i] = s.BudgetUs
			}
		}
	}
	return out
}

// trustworthy says what would make a run worthless.
func trustworthy(r table.Report) error {
	var faults []error
	if !r.Realtime {
		faults = append(faults, fmt.Errorf("the fast path is not real-time: %v", r.Missing))
	}
	for _, s := range r.Servers {
		if s.Error != "" {
			faults = append(faults, fmt.Errorf("server %s: %s", s.ID, s.Error))
		}
	}
	for _, c := range r.Cores {
		if c.Broken > 0 {
			faults = append(faults, fmt.Errorf("core %d: more than the plan allows was promised %d times", c.ID, c.Broken))
		}
	}
	return errors.Join(faults...)
}

func allCores() []int {
	var out []int
	for core := range runtime.NumCPU() {
		out = append(out, core)
	}
	return out
}
