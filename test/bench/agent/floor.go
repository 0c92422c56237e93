package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/process"
	"github.com/mainspring-rt/mainspring/test/bench/joblog"
	"github.com/mainspring-rt/mainspring/test/bench/report"
	"github.com/mainspring-rt/mainspring/test/bench/rig"
	"github.com/mainspring-rt/mainspring/test/bench/stats"
)

// floor is what the machine takes for a wake-up alone, without any code of ours: no reaction is faster, and nobody who is
// woken for each event is cheaper. A thread of the highest priority sleeps until absolute times, wakes, and sleeps again.
type floor struct {
	loaded bool
	wake   stats.Sorted // us, from the time that was asked for until the thread ran
	// cpuUs is what a wake-up costs, by the scheduler's account: interrupt, switch, the sleep of the next.
	cpuUs float64
}

const (
	floorPeriod = time.Millisecond
	floorWakes  = 3000
	// floorAfter is when the first is due: the program has started by then.
	floorAfter = time.Second
)

// percent of a core that a thousand wake-ups a second take.
func (f floor) percent() float64 { return f.cpuUs * 1000 / 1e6 * 100 }

func (f floor) String() string {
	load := "idle"
	if f.loaded {
		load = "loaded"
	}
	return fmt.Sprintf("%s, a bare thread that only wakes: %d wake-ups, p50 %.1f p99 %.1f p99.9 %.1f max %.1f us, %.1f us of CPU each",
		load, len(f.wake), f.wake.Quantile(0.5), f.wake.Quantile(0.99), f.wake.Quantile(0.999), f.wake.Max(), f.cpuUs)
}

// floor measures it on the core of the servers.
func (b bench) floor(ctx context.Context, loaded bool) (f floor, err error) {
	dir, err := os.MkdirTemp("", "mainspring-bench-agent-")
	if err != nil {
		return f, fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	if loaded {
		stop, err := rig.Spin(b.programs, dir, allCores())
		if err != nil {
			return f, err
		}
		defer stop()
	}
	start := rig.Monotonic() + floorAfter.Nanoseconds()
	log := filepath.Join(dir, "floor.json")
	child, err := process.Start(process.Command{
		Name: "floor", Path: b.programs.Task, Log: filepath.Join(dir, "floor.log"), Args: b.floorArguments(start, log),
	})
	if err != nil {
		return f, err
	}
	defer child.Kill()
	f.loaded = loaded
	if f.cpuUs, err = costOf(ctx, child.PID(), start); err != nil {
		return f, err
	}
	select {
	case <-ctx.Done():
		return f, ctx.Err()
	case <-child.Exited():
	}
	jobs, err := joblog.Read(log)
	if err != nil {
		return f, errors.Join(err, child.Died())
	}
	f.wake = wakes(jobs)
	return f, nil
}

func (b bench) floorArguments(start int64, log string) []string {
	return []string{
		"--name=floor", "--policy=fifo", "--priority=99", "--core=" + strconv.Itoa(b.core), "--work=1us", "--period=" + floorPeriod.String(),
		"--align=" + floorPeriod.String(), "--start=" + strconv.FormatInt(start, 10), "--duration=" + (floorWakes * floorPeriod).String(), "--log=" + log,
	}
}

// costOf a wake-up, in microseconds of CPU, by the wake-ups between the first and the last half second.
func costOf(ctx context.Context, pid int, start int64) (float64, error) {
	const margin = 500 * time.Millisecond
	var at, ran [2]int64
	for i, until := range []time.Duration{margin, floorWakes*floorPeriod - margin} {
		if err := rig.Until(ctx, start+until.Nanoseconds()); err != nil {
			return 0, err
		}
		cpu, err := rig.CPU(pid)
		if err != nil {
			return 0, err
		}
		at[i], ran[i] = rig.Monotonic(), cpu.Nanoseconds()
	}
	return us(ran[1]-ran[0]) * float64(floorPeriod) / float64(at[1]-at[0]), nil
}

// wakes are how long after its time each wake-up came, in microseconds. One whose predecessor had not ended by then
// was no wake-up.
func wakes(log joblog.Log) stats.Sorted {
	var out []float64
	for i, j := range log.Jobs {
		if i == 0 || log.Jobs[i-1].Release+log.Jobs[i-1].Response < j.Release {
			out = append(out, us(j.Response))
		}
	}
	return stats.Of(out)
}

// floors are the figures of what the machine takes for a wake-up alone.
func floors(floors []floor) []report.Figure {
	var out []report.Figure
	for _, f := range floors {
		prefix, load := "floor_", "idle"
		if f.loaded {
			prefix, load = "loaded_floor_", "loaded"
		}
		out = append(out,
			report.Figure{Key: prefix + "wake_p50_us", Value: f.wake.Quantile(0.5), Note: fmt.Sprintf("%s: no code of ours: a bare thread of priority 99 that only wakes, from the time asked for until it runs, n %d", load, len(f.wake))},
			report.Figure{Key: prefix + "wake_p99_us", Value: f.wake.Quantile(0.99)},
			report.Figure{Key: prefix + "wake_p999_us", Value: f.wake.Quantile(0.999)},
			report.Figure{Key: prefix + "cpu_percent", Value: f.percent(), Note: "of a core, for 1,000 wake-ups a second that do nothing"},
		)
	}
	return out
}
