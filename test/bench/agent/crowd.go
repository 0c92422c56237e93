package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/mainspring-rt/mainspring/test/bench/rig"
)

// crowd is what the agent takes with many servers.
type crowd struct {
	servers    int
	eventsPerS float64
	lost       uint64
	cpuPercent map[string]float64 // by process
	rssMiB     map[string]float64
}

func (c crowd) cpu() float64 { return c.cpuPercent["agent"] + c.cpuPercent["fastpath"] }
func (c crowd) rss() float64 { return c.rssMiB["agent"] + c.rssMiB["fastpath"] }

// usage of a process at a time.
type usage struct {
	at  time.Time
	cpu map[string]time.Duration
}

func use(processes map[string]int) (usage, error) {
	u := usage{at: time.Now(), cpu: map[string]time.Duration{}}
	for name, pid := range processes {
		ran, err := rig.CPU(pid)
		if err != nil {
			return u, err
		}
		u.cpu[name] = ran
	}
	return u, nil
}

// crowdAfter is when the first jobs of many servers are released.
const crowdAfter = 20 * time.Second

// crowd runs many servers, each of which asks for a raise in every period.
func (b bench) crowd(ctx context.Context) (c crowd, err error) {
	dir, err := os.MkdirTemp("", "mainspring-bench-agent-")
	if err != nil {
		return c, fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	start := rig.Monotonic() + crowdAfter.Nanoseconds()
	agent, err := rig.Start(ctx, b.programs, b.many.file(b, b.lead, start), dir)
	if err != nil {
		return c, err
	}
	defer func() {
		if stopped := agent.Stop(); err == nil {
			err = stopped
		}
	}()
	if err := begins(ctx, start); err != nil {
		return c, err
	}
	return b.observe(ctx, agent)
}

func (b bench) observe(ctx context.Context, agent *rig.Agent) (c crowd, err error) {
	processes, err := agent.Processes()
	if err != nil {
		return c, err
	}
	first, err := agent.Client.Report(ctx)
	if err != nil {
		return c, err
	}
	before, err := use(processes)
	if err != nil {
		return c, err
	}
	if err := rig.Until(ctx, rig.Monotonic()+b.many.duration().Nanoseconds()); err != nil {
		return c, err
	}
	after, err := use(processes)
	if err != nil {
		return c, err
	}
	last, err := agent.Client.Report(ctx)
	if err != nil {
		return c, err
	}
	took := after.at.Sub(before.at)
	c = crowd{servers: len(last.Servers), lost: last.Lost, cpuPercent: map[string]float64{}, rssMiB: map[string]float64{}}
	c.eventsPerS = float64(last.Events-first.Events) / took.Seconds()
	for name, pid := range processes {
		c.cpuPercent[name] = 100 * float64(after.cpu[name]-before.cpu[name]) / float64(took)
		bytes, err := rig.RSS(pid)
		if err != nil {
			return c, err
		}
		c.rssMiB[name] = float64(bytes) / (1 << 20)
	}
	return c, nil
}
