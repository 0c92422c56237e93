package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/test/bench/joblog"
	"github.com/mainspring-rt/mainspring/test/bench/report"
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

// configurations with an agent. On a core that is too full for everybody's high budget Reserved is treated as Elastic,
// so that there is nothing to see of it.
func (k kind) configurations() []string {
	if k.squeezes {
		return []string{static, elastic}
	}
	return []string{static, elastic, reserved}
}

// run is one attempt at a set under a configuration.
type run struct {
	configuration string
	set           set
	attempt       int  // from 1
	kept          bool // the others were disturbed more
	load1         float64
	logs          []joblog.Log // as set.servers
	agent         deeds        // none under cfs
	budgets       []snapshot   // of sets that squeeze
	recording     recording    // empty without a trace
	held          [][]int64    // as logs[].Jobs: for how long the task had the core
}

// result is everything that ran with one backend.
type result struct {
	backend string
	node    table.Report
	// admissions of the sets, by kind; a set that is refused has no runs with an agent.
	sets       []set
	admissions map[string]admission
	runs       []run
}

// measure runs every set under every configuration with every backend that works. Plain CFS needs no backend:
// its runs stand beside all.
func (b bench) measure(ctx context.Context, sets []set) ([]result, error) {
	found, err := b.available(ctx, sets)
	if err != nil {
		return nil, err
	}
	b.progress = newProgress(os.Stderr, planned(found, sets))
	var plain []run
	for _, s := range sets {
		if s.kind.squeezes {
			continue
		}
		runs, err := b.settled(ctx, "", cfs, s, 0)
		if err != nil {
			return nil, err
		}
		plain = append(plain, runs...)
	}
	for i := range found {
		if err := b.fill(ctx, &found[i], plain); err != nil {
			return nil, fmt.Errorf("backend %s: %w", found[i].backend, err)
		}
	}
	return found, nil
}

// planned is how many runs there will be if none is disturbed.
func planned(found []result, sets []set) int {
	n := 0
	for _, s := range sets {
		if !s.kind.squeezes {
			n++
		}
	}
	for _, r := range found {
		for _, s := range r.sets {
			if _, admitted := r.charge(s); admitted {
				n += len(s.kind.configurations())
			}
		}
	}
	return n
}

// available asks every backend for its granularity and capacity, and says aloud which does not work.
func (b bench) available(ctx context.Context, sets []set) ([]result, error) {
	var out []result
	for _, backend := range b.backends {
		dir, err := os.MkdirTemp(b.dir, "probe-")
		if err != nil {
			return nil, fmt.Errorf("making a directory: %w", err)
		}
		node, err := rig.Probe(ctx, b.programs, backend, b.core, dir)
		if missing := (*rig.UnavailableError)(nil); errors.As(err, &missing) {
			fmt.Fprintf(os.Stderr, "SKIPPED: %v\n", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("backend %s: %w", backend, err)
		}
		r := result{backend: backend, node: node, sets: setsOf(backend, sets), admissions: map[string]admission{}}
		for _, s := range r.sets {
			a := s.judge(node, b.core)
			r.admissions[s.kind.name] = a
			fmt.Fprintf(os.Stderr, "backend %s, granularity %d us, set %s: %s\n", backend, node.GranularityUs, s.kind.name, a)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("none of the backends %v works here", b.backends)
	}
	return out, nil
}

// charge is what is charged to the budgets of a set, so that it is admitted: what the node published, or granularityUs.
// Every start of the fast path measures anew; this keeps all runs alike. Nobody is squeezed in sets that are not for that.
func (r result) charge(s set) (us int64, admitted bool) {
	switch a := r.admissions[s.kind.name]; {
	case a.own.Admitted && a.squeezes == s.kind.squeezes:
		return max(r.node.GranularityUs, 1), true
	default:
		return granularityUs, a.charged.Admitted
	}
}

// setsOf a backend: one that promises nothing is worth no more than one set.
func setsOf(backend string, sets []set) []set {
	if backend == actuator.CFS {
		return sets[:min(1, len(sets))]
	}
	return sets
}

// fill runs the sets that the backend admits.
func (b bench) fill(ctx context.Context, r *result, plain []run) error {
	for _, s := range r.sets {
		for _, run := range plain {
			if run.set.kind.name == s.kind.name {
				r.runs = append(r.runs, run)
			}
		}
		charge, admitted := r.charge(s)
		if !admitted {
			continue
		}
		for _, configuration := range s.kind.configurations() {
			runs, err := b.settled(ctx, r.backend, configuration, s, charge)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.kind.name, configuration, err)
			}
			r.runs = append(r.runs, runs...)
		}
	}
	return nil
}

// attempts is how often a run is made at most when the machine stood still in it.
const attempts = 3

// settled runs a set, again when the machine stood still meanwhile for longer than any schedule could make up for.
// It returns all runs; the least disturbed one is kept. On a machine that never rests not all runs are made again: see
// mayRepeat.
func (b bench) settled(ctx context.Context, backend, configuration string, s set, chargeUs int64) ([]run, error) {
	var runs []run
	for attempt := 1; attempt <= attempts; attempt++ {
		r, err := b.once(ctx, backend, configuration, s, chargeUs)
		if err != nil {
			return nil, err
		}
		r.attempt = attempt
		runs = append(runs, r)
		again := r.stood() >= longStall && attempt < attempts && b.progress.mayRepeat()
		b.progress.made(backend, r, again)
		if !again {
			break
		}
	}
	keepBest(runs)
	return runs, nil
}

// keepBest marks the run in which the machine stood still for the shortest time.
func keepBest(runs []run) {
	best := 0
	for i, r := range runs {
		if r.stood() < runs[best].stood() {
			best = i
		}
	}
	runs[best].kept = true
}

// Times of a run: all tasks release their first job together, the worst moment for those that wait, once all have
// started. The load begins before that, but does not slow down their start.
const (
	startAfter = 3 * time.Second
	loadBefore = 500 * time.Millisecond
	// grace is how long tasks go on with late jobs after the last release.
	grace = time.Second
)

// once runs a set once.
func (b bench) once(ctx context.Context, backend, configuration string, s set, chargeUs int64) (run, error) {
	r := run{configuration: configuration, set: s, load1: report.ReadEnvironment().Load1}
	dir, err := os.MkdirTemp(b.dir, "run-")
	if err != nil {
		return r, fmt.Errorf("making a directory: %w", err)
	}
	start := rig.Monotonic() + startAfter.Nanoseconds()
	stop, err := rig.SpinAll(b.programs, dir, b.load(start-loadBefore.Nanoseconds()))
	if err != nil {
		return r, err
	}
	defer stop()
	e := execution{bench: b, dir: dir, set: s, start: start, chargeUs: chargeUs}
	if err := b.execute(ctx, e, backend, &r); err != nil {
		return r, err
	}
	for _, server := range s.servers {
		log, err := joblog.Read(logOf(dir, server.ID))
		if err != nil {
			return r, err
		}
		r.logs = append(r.logs, log)
	}
	r.held = heldOf(r.logs, r.recording.turns)
	return r, os.RemoveAll(dir)
}

// execute runs the tasks while the kernel records who has the core.
func (b bench) execute(ctx context.Context, e execution, backend string, r *run) (err error) {
	if b.trace {
		recorder, err := record(b.core, e.dir)
		if err != nil {
			return fmt.Errorf("%w; --trace=false does without", err)
		}
		defer func() {
			heard, stopped := recorder.stop()
			r.recording, err = heard, errors.Join(err, stopped)
		}()
	}
	if r.configuration == cfs {
		return e.plainly(ctx)
	}
	r.agent, r.budgets, err = e.governed(ctx, backend, r.configuration)
	return err
}

// load is the same in every configuration: busy threads on the core of the tasks, one on each other core.
func (b bench) load(start int64) []rig.Spinner {
	var out []rig.Spinner
	for _, core := range allCores() {
		if core != b.core {
			out = append(out, rig.Spinner{Core: core, Start: start})
		}
	}
	for range b.spinners {
		out = append(out, rig.Spinner{Core: b.core, Start: start})
	}
	if b.spinners > 0 {
		out = append(out, rig.Spinner{Core: b.core, Nice: b.nice, Start: start})
	}
	return out
}

func logOf(dir, server string) string { return filepath.Join(dir, server+".jobs.json") }
