package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/test/bench/rig"
)

// crowd is what the agent takes with many servers.
type crowd struct {
	servers    int
	raisesPerS float64
	eventsPerS float64
	lost       uint64
	cpuPercent map[string]float64 // by process
	memory     map[string]rig.Memory
}

func (c crowd) cpu() float64 { return c.cpuPercent["agent"] + c.cpuPercent["fastpath"] }
func (c crowd) rss() float64 { return mib(c.memory["agent"].Resident + c.memory["fastpath"].Resident) }

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// split says what the memory of the two processes is.
func (c crowd) split() string {
	a, f := c.memory["agent"], c.memory["fastpath"]
	return fmt.Sprintf("fast path %.1f, %.1f of them its own, the others pages of its program; the rest (standalone) %.1f, %.1f of them its own",
		mib(f.Resident), mib(f.Own), mib(a.Resident), mib(a.Own))
}

func (c crowd) String() string {
	return fmt.Sprintf("%d servers, %.0f events/s, of which %.0f raises, %d lost; CPU %.2f %% of a core: fast path %.2f, agent %.2f; RSS %.1f MiB: %s",
		c.servers, c.eventsPerS, c.raisesPerS, c.lost, c.cpu(), c.cpuPercent["fastpath"], c.cpuPercent["agent"], c.rss(), c.split())
}

func raises(r table.Report) (n uint64) {
	for _, s := range r.Servers {
		n += s.Raises
	}
	return n
}

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
	agent, err := rig.Start(ctx, b.programs, b.many.file(b, fmt.Sprintf("%dus", b.many.leadUs), start), dir)
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
	c = crowd{servers: len(last.Servers), lost: last.Lost, cpuPercent: map[string]float64{}, memory: map[string]rig.Memory{}}
	c.eventsPerS = float64(last.Events-first.Events) / took.Seconds()
	c.raisesPerS = float64(raises(last)-raises(first)) / took.Seconds()
	for name, pid := range processes {
		c.cpuPercent[name] = 100 * float64(after.cpu[name]-before.cpu[name]) / float64(took)
		if c.memory[name], err = rig.MemoryOf(pid); err != nil {
			return c, err
		}
	}
	return c, nil
}
