package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/test/bench/rig"
	"github.com/mainspring-rt/mainspring/test/bench/stats"
)

// ramp is a set of servers whose jobs grow from period to period, so that each of their budgets is used up and
// raised to the next level once in every period: one event each.
type ramp struct {
	servers       int
	periodUs      int64
	lowUs, stepUs int64
	levels        int
	leadUs        int64 // when not 0, the first jobs are so much shorter: they end just after their alarms
}

// highUs is the highest budget. There is a level above every job.
func (r ramp) highUs() int64 { return r.lowUs + int64(r.levels)*r.stepUs }

// duration until every level was reached.
func (r ramp) duration() time.Duration {
	return time.Duration(r.levels) * time.Duration(r.periodUs) * time.Microsecond
}

// tail is how long the tasks go on so that they are there when everything is read.
const tail = 20 * time.Second

// samples is how many reactions of a round are kept: all.
const samples = 10_000

// startAfter is when the first jobs are released: by then the agent and all tasks have started.
const startAfter = 6 * time.Second

// file has the servers for the agent.
func (r ramp) file(b bench, lead string, start int64) rig.File {
	f := rig.File{Backend: b.backend, Lead: lead, Cores: fmt.Sprint(b.core), Granularity: "1us"}
	for i := range r.servers {
		s := rig.Server{Name: fmt.Sprintf("s%d", i), Criticality: "High", Period: r.periodUs, Low: r.lowUs, High: r.highUs(), Core: b.core, Dwell: tail.Microseconds(), Policy: "own"}
		for level := s.Low + r.stepUs; level < s.High; level += r.stepUs {
			s.Levels = append(s.Levels, level)
		}
		period, us := time.Duration(r.periodUs)*time.Microsecond, func(us int64) string { return fmt.Sprintf("%dus", us) }
		s.Command = []string{
			b.programs.Task, "--name", s.Name, "--period", period.String(), "--start", fmt.Sprint(start), "--align", period.String(), "--policy", "fifo", "--work", us(r.lowUs - r.leadUs + r.stepUs/2), "--ramp", us(r.stepUs),
			"--duration", (r.duration() + tail).String(), "--grace", "0s",
		}
		f.Servers = append(f.Servers, s)
	}
	return f
}

// round is what one run measured, in microseconds.
type round struct {
	loaded                       bool
	leadUs                       int64
	react, detect, wake, actuate stats.Sorted
	slack                        stats.Sorted // from the written budget to the end of the one before
	whole                        stats.Sorted // the same of raises whose budgets had the whole lead, and not a quarter of themselves
	late                         late
	stolen                       time.Duration // by the hypervisor, of the servers' core, while it ran
	lost                         uint64
	perSwitch                    perSwitch
}

// late counts raises that came after the end of the budget before, by what alone made them late: each phase took
// longer than the lead. Of those in between none did, only all together.
type late struct{ detect, wake, actuate, between int }

func (l late) String() string {
	return fmt.Sprintf("%d late: %d seen more than the lead late, %d woken so, %d written so, %d by all together",
		l.detect+l.wake+l.actuate+l.between, l.detect, l.wake, l.actuate, l.between)
}

// count takes a raise that was late.
func (l *late) count(s client.Sample) {
	switch {
	case s.Detected-s.Instant > s.LeadNs:
		l.detect++
	case s.Woken-s.Detected > s.LeadNs:
		l.wake++
	case s.Written-s.Woken > s.LeadNs:
		l.actuate++
	default:
		l.between++
	}
}

func (l late) plus(o late) late {
	return late{l.detect + o.detect, l.wake + o.wake, l.actuate + o.actuate, l.between + o.between}
}

func (r round) String() string {
	load := "idle"
	if r.loaded {
		load = "loaded"
	}
	return fmt.Sprintf("%s, lead %d us: %d events, react p50 %.1f p99 %.1f max %.1f us (p50 p99: detect %.1f %.1f, wake %.1f %.1f, actuate %.1f %.1f), in time %.4f (%s; %s), %s stolen, %.0f ns per switch, %d lost",
		load, r.leadUs, len(r.react), r.react.Quantile(0.5), r.react.Quantile(0.99), r.react.Max(), r.detect.Quantile(0.5), r.detect.Quantile(0.99),
		r.wake.Quantile(0.5), r.wake.Quantile(0.99), r.actuate.Quantile(0.5), r.actuate.Quantile(0.99), r.inTime(), r.wholeInTime(), r.late, r.stolen, r.perSwitch.mean(), r.lost)
}

// inTime is the share of raises that were written before the budget ended.
func (r round) inTime() float64 { return r.slack.Share(notLate) }

func notLate(slackUs float64) bool { return slackUs >= 0 }

// wholeInTime says how many of those with the whole lead were.
func (r round) wholeInTime() string {
	return fmt.Sprintf("%.4f of %d with the whole lead", r.whole.Share(notLate), len(r.whole))
}

// round runs the ramp as often as there are passes.
func (b bench) round(ctx context.Context, loaded bool, lead string) (round, error) {
	var all round
	for range b.passes {
		r, err := b.pass(ctx, loaded, lead)
		if err != nil {
			return all, err
		}
		all.add(r)
	}
	return all, nil
}

// add joins what another pass with the same load and lead measured.
func (r *round) add(o round) {
	r.loaded, r.leadUs = o.loaded, o.leadUs
	r.react = stats.Of(append(r.react, o.react...))
	r.detect = stats.Of(append(r.detect, o.detect...))
	r.wake = stats.Of(append(r.wake, o.wake...))
	r.actuate = stats.Of(append(r.actuate, o.actuate...))
	r.slack = stats.Of(append(r.slack, o.slack...))
	r.whole = stats.Of(append(r.whole, o.whole...))
	r.late = r.late.plus(o.late)
	r.stolen += o.stolen
	r.lost += o.lost
	r.perSwitch.runs += o.perSwitch.runs
	r.perSwitch.took += o.perSwitch.took
}

// pass runs the ramp once.
func (b bench) pass(ctx context.Context, loaded bool, lead string) (r round, err error) {
	dir, err := os.MkdirTemp("", "mainspring-bench-agent-")
	if err != nil {
		return r, fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	if loaded {
		stop, err := rig.Spin(b.programs, dir, allCores())
		if err != nil {
			return r, err
		}
		defer stop()
	}
	start := rig.Monotonic() + startAfter.Nanoseconds()
	file := b.ramp.file(b, lead, start)
	file.Samples = samples
	agent, err := rig.Start(ctx, b.programs, file, dir)
	if err != nil {
		return r, err
	}
	defer func() {
		if stopped := agent.Stop(); err == nil {
			err = stopped
		}
	}()
	if err := begins(ctx, start); err != nil {
		return r, err
	}
	before, err := stolen(b.core)
	if err != nil {
		return r, err
	}
	watch, err := watchPrograms(agent)
	if err != nil {
		return r, err
	}
	defer watch.close()
	if err := rig.Until(ctx, start+(b.ramp.duration()+time.Second).Nanoseconds()); err != nil {
		return r, err
	}
	if r.perSwitch, err = watch.since(); err != nil {
		return r, err
	}
	after, err := stolen(b.core)
	if err != nil {
		return r, err
	}
	reactions, err := agent.Client.Samples(ctx)
	if err != nil {
		return r, err
	}
	state, err := agent.Client.Report(ctx)
	if err != nil {
		return r, err
	}
	if err := healthy(state); err != nil {
		return r, err
	}
	r.loaded, r.leadUs, r.lost, r.stolen = loaded, state.LeadUs, state.Lost, after-before
	r.take(reactions, start)
	return r, nil
}

// take takes the reactions since the first release. Before, the programs start: their threads become real-time in the
// middle of a run on the core, where no context switch tells of it.
func (r *round) take(samples []client.Sample, start int64) {
	var react, detect, wake, actuate, slack, whole []float64
	for _, s := range samples {
		if s.Instant < start {
			continue
		}
		react = append(react, us(s.Written-s.Instant))
		detect = append(detect, us(s.Detected-s.Instant))
		wake = append(wake, us(s.Woken-s.Detected))
		actuate = append(actuate, us(s.Written-s.Woken))
		slack = append(slack, us(s.Instant+s.LeadNs-s.Written))
		if s.LeadNs >= r.leadUs*1000 {
			whole = append(whole, us(s.Instant+s.LeadNs-s.Written))
		}
		if s.LeadNs > 0 && s.Written > s.Instant+s.LeadNs {
			r.late.count(s)
		}
	}
	r.react, r.detect, r.wake, r.actuate, r.slack = stats.Of(react), stats.Of(detect), stats.Of(wake), stats.Of(actuate), stats.Of(slack)
	r.whole = stats.Of(whole)
}

// tick is the unit of /proc/stat (USER_HZ).
const tick = 10 * time.Millisecond

// stolen is the time that the hypervisor has taken from a core since the machine started, as far as it tells.
func stolen(core int) (time.Duration, error) {
	times, err := host.New("/").CPUTimes()
	if err != nil {
		return 0, err
	}
	for _, t := range times {
		if t.CPU == core {
			return time.Duration(t.Stolen) * tick, nil
		}
	}
	return 0, fmt.Errorf("reading the stolen time of core %d: it is not online", core)
}

func us(ns int64) float64 { return float64(ns) / 1000 }

// healthy says what would make the figures worthless.
func healthy(r table.Report) error {
	if !r.Realtime {
		return fmt.Errorf("the fast path is not real-time: %v", r.Missing)
	}
	for _, s := range r.Servers {
		if s.Error != "" || s.Refused > 0 || s.Denied > 0 {
			return fmt.Errorf("server %s: %q, %d raises refused, %d denied; want none", s.ID, s.Error, s.Refused, s.Denied)
		}
	}
	return nil
}

func allCores() []int {
	var out []int
	for core := range runtime.NumCPU() {
		out = append(out, core)
	}
	return out
}

// begins waits for the first release. The agent and all tasks must have been there before.
func begins(ctx context.Context, start int64) error {
	if late := time.Duration(rig.Monotonic() - start); late > 0 {
		return fmt.Errorf("starting took %s longer than there was; is the machine busy?", late)
	}
	return rig.Until(ctx, start)
}
