package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/test/bench/joblog"
	"github.com/mainspring-rt/mainspring/test/bench/rig"
)

// Configurations, in the order in which they run.
const (
	cfs      = "cfs"
	static   = "static"
	elastic  = "elastic"
	reserved = "reserved"
)

var configurations = []string{cfs, static, elastic, reserved}

// run is one set under one configuration.
type run struct {
	configuration string
	set           set
	logs          []joblog.Log // as set.servers
	agent         table.Report // zero under cfs
	attempts      int          // that it took; see one
	discarded     []string     // the other attempts, a line each
}

// result is everything that ran with one backend.
type result struct {
	backend string
	runs    []run
}

// startAfter is when all tasks release their first job together, the worst moment for those that wait.
const startAfter = 4 * time.Second

// grace is how long tasks go on with late jobs after the last release.
const grace = 2 * time.Second

// measure runs every set under every configuration. Plain CFS needs no backend: its runs stand beside all.
func (b bench) measure(ctx context.Context, sets []set) ([]result, error) {
	var plain []run
	for _, s := range sets {
		r, err := b.one(ctx, "", cfs, s)
		if err != nil {
			return nil, err
		}
		plain = append(plain, r)
	}
	var out []result
	for _, backend := range b.backends {
		result := result{backend: backend, runs: append([]run{}, plain...)}
		for _, s := range sets {
			for _, configuration := range configurations[1:] {
				r, err := b.one(ctx, backend, configuration, s)
				if err != nil {
					return nil, fmt.Errorf("backend %s, %s, %s: %w", backend, s.kind, configuration, err)
				}
				result.runs = append(result.runs, r)
			}
		}
		out = append(out, result)
	}
	return out, nil
}

// attempts is how often a run is made at most when the machine stood still in it.
const attempts = 3

// one runs a set, again when the machine stood still meanwhile for longer than any schedule could make up for.
// It returns the least disturbed of the runs.
func (b bench) one(ctx context.Context, backend, configuration string, s set) (run, error) {
	var best run
	var discarded []string
	for attempt := range attempts {
		r, err := b.once(ctx, backend, configuration, s)
		if err != nil {
			return r, err
		}
		switch {
		case attempt == 0:
			best = r
		case r.stood() < best.stood():
			best, discarded = r, append(discarded, best.String())
		default:
			discarded = append(discarded, r.String())
		}
		best.attempts, best.discarded = attempt+1, discarded
		if best.stood() < longStall {
			break
		}
	}
	return best, nil
}

// once runs a set once, beside a spinning ordinary thread on each core.
func (b bench) once(ctx context.Context, backend, configuration string, s set) (run, error) {
	r := run{configuration: configuration, set: s}
	dir, err := os.MkdirTemp(b.dir, "run-")
	if err != nil {
		return r, fmt.Errorf("making a directory: %w", err)
	}
	stop, err := rig.Spin(b.programs, dir, allCores())
	if err != nil {
		return r, err
	}
	defer stop()
	if configuration == cfs {
		err = b.plainly(ctx, dir, s)
	} else {
		r.agent, err = b.governed(ctx, dir, backend, configuration, s)
	}
	if err != nil {
		return r, err
	}
	for _, server := range s.servers {
		log, err := joblog.Read(logOf(dir, server))
		if err != nil {
			return r, err
		}
		r.logs = append(r.logs, log)
	}
	fmt.Fprintln(os.Stderr, strings.TrimSpace(backend+" "+r.String()))
	return r, os.RemoveAll(dir)
}

func logOf(dir string, s rt.Server) string { return filepath.Join(dir, s.ID+".jobs.json") }

// scheduling of a task: its policy, and the core that it stays on; -1 where the backend sees to that.
type scheduling struct {
	policy string
	core   int
}

// schedulingOf tasks under a backend. A thread that is pinned cannot become SCHED_DEADLINE, which that backend makes it.
func (b bench) schedulingOf(backend string) scheduling {
	if backend == "deadline" {
		return scheduling{"other", -1}
	}
	return scheduling{"fifo", b.core}
}

// task is the command of a server.
func (b bench) task(dir string, i int, s set, how scheduling, start int64) []string {
	server, us := s.servers[i], func(ns int64) string { return strconv.FormatInt(ns/1000, 10) + "us" }
	d := demand(server)
	return []string{
		b.programs.Task, "--name=" + server.ID, "--period=" + us(server.Period*1000), "--work-least=" + us(d.Least), "--work=" + us(d.Most),
		"--overrun=" + strconv.FormatFloat(d.Probability, 'g', -1, 64), "--overrun-least=" + us(d.OverrunLeast), "--overrun-most=" + us(d.OverrunTo),
		"--start=" + strconv.FormatInt(start, 10), "--seed=" + strconv.FormatUint(s.seed*1000+uint64(i), 10), "--duration=" + b.duration().String(), "--grace=" + grace.String(),
		"--policy=" + how.policy, "--priority=" + strconv.Itoa(server.Priority), "--core=" + strconv.Itoa(how.core), "--log=" + logOf(dir, server),
	}
}

// plainly runs the tasks as ordinary threads.
func (b bench) plainly(ctx context.Context, dir string, s set) error {
	var running []*process.Process
	defer func() {
		for _, child := range running {
			child.Kill()
		}
	}()
	start := rig.Monotonic() + startAfter.Nanoseconds()
	for i, server := range s.servers {
		command := b.task(dir, i, s, scheduling{"other", b.core}, start)
		child, err := process.Start(process.Command{Name: server.ID, Path: command[0], Args: command[1:], Log: filepath.Join(dir, server.ID+".log")})
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

// governed runs the tasks under the agent, and returns its last report.
func (b bench) governed(ctx context.Context, dir, backend, configuration string, s set) (table.Report, error) {
	f := rig.File{Backend: backend, Cores: strconv.Itoa(b.core), Granularity: strconv.Itoa(granularityUs) + "us", Admission: rt.TestT1}
	start := rig.Monotonic() + startAfter.Nanoseconds()
	for i, server := range s.servers {
		entry := rig.Server{
			Name: server.ID, Criticality: server.Criticality.String(), Period: server.Period, Low: server.Low, High: server.High,
			Core: b.core, Priority: server.Priority, Policy: "own", Command: b.task(dir, i, s, b.schedulingOf(backend), start),
		}
		switch configuration {
		case static:
			entry.High = entry.Low
		case reserved:
			entry.Mode = table.Reserved
		}
		f.Servers = append(f.Servers, entry)
	}
	agent, err := rig.Start(ctx, b.programs, f, dir)
	if err != nil {
		return table.Report{}, err
	}
	if err := agent.Wait(ctx); err != nil {
		return table.Report{}, err
	}
	last, err := agent.Last()
	if err != nil {
		return last, err
	}
	return last, trustworthy(last)
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
