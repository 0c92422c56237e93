package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/test/bench/joblog"
	"github.com/mainspring-rt/mainspring/test/bench/report"
	"github.com/mainspring-rt/mainspring/test/bench/stats"
)

// levels of criticality, the highest first, with their names in keys.
var levels = []struct {
	is   rt.Criticality
	name string
}{{rt.High, "high"}, {rt.Middle, "middle"}, {rt.Low, "low"}}

// outcome sums up the tasks of one criticality.
type outcome struct {
	jobs, misses int
	// beside are the misses while the machine did not run the core: see stalls.
	beside    int
	responses stats.Sorted // ms
}

func (o *outcome) add(l joblog.Log, stalls []span) {
	o.jobs += l.Released
	o.misses += l.Misses()
	o.beside += beside(l, stalls)
	o.responses = append(o.responses, l.Responses()...)
}

// of sums up the runs of a configuration.
func (r result) of(configuration string, c rt.Criticality) outcome {
	var o outcome
	for _, run := range r.runs {
		if run.configuration != configuration {
			continue
		}
		stalls := run.stalls()
		for i, s := range run.set.servers {
			if s.Criticality == c {
				o.add(run.logs[i], stalls)
			}
		}
	}
	o.responses = stats.Of(o.responses)
	return o
}

// String is a run in a line.
func (r run) String() string {
	var parts []string
	one := r.alone()
	for _, level := range levels {
		o := one.of(r.configuration, level.is)
		parts = append(parts, fmt.Sprintf("%s %d of %d (p99 %.1f ms)", level.name, o.misses, o.jobs, o.responses.Quantile(0.99)))
	}
	raises, throttles := r.agentDid()
	return fmt.Sprintf("%s %s: misses %s; %d raises, %d throttles, %d stalls (longest %.1f ms)", r.set.kind, r.configuration, strings.Join(parts, ", "), raises, throttles, len(r.stalls()), float64(r.stood())/1e6)
}

// agentDid is how often the agent raised, and how often a server was stopped.
func (r run) agentDid() (raises, throttles uint64) {
	for _, s := range r.agent.Servers {
		raises += s.Raises + s.Partial
		throttles += s.Throttles
	}
	return raises, throttles
}

// goal of a configuration for a criticality, given what happened with budgets fixed at low. Low work is to be
// degraded, but never starved: of its jobs, 5 % more may miss their deadline.
func goal(configuration string, c rt.Criticality, fixed outcome) string {
	switch {
	case c == rt.High && configuration == reserved:
		return "0"
	case c == rt.High && configuration == elastic:
		return fmt.Sprintf("<= %d", fixed.misses/20)
	case c == rt.Middle && configuration != static && configuration != cfs:
		return fmt.Sprintf("<= %d", fixed.misses)
	case c == rt.Low && configuration != static && configuration != cfs:
		return fmt.Sprintf("<= %d", fixed.misses+fixed.jobs*5/100)
	}
	return ""
}

// figures of a backend, over all sets.
func (r result) figures(sets []set, seed uint64) []report.Figure {
	out := []report.Figure{
		{Key: "backend", Text: r.backend},
		{Key: "seed", Value: float64(seed)},
		{Key: "admitted", Value: float64(len(sets) * len(mix)), Note: fmt.Sprintf("containers of %d sets on one core each, by %s", len(sets), rt.TestT1)},
	}
	for _, level := range levels {
		out = append(out, report.Figure{Key: "jobs_" + level.name, Value: float64(r.of(static, level.is).jobs), Note: "of each configuration"})
	}
	for _, level := range levels {
		fixed := r.of(static, level.is)
		for _, configuration := range configurations {
			o := r.of(configuration, level.is)
			note := ""
			if o.beside > 0 {
				note = fmt.Sprintf("%d of them while the machine did not run the core", o.beside)
			}
			out = append(out, report.Figure{
				Key: "misses_" + level.name + "_" + configuration, Value: float64(o.misses), Goal: goal(configuration, level.is, fixed), Note: note,
			})
		}
	}
	for _, level := range levels {
		for _, configuration := range configurations {
			o := r.of(configuration, level.is)
			out = append(out, report.Figure{
				Key: "response_p99_ms_" + level.name + "_" + configuration, Value: o.responses.Quantile(0.99),
				Note: fmt.Sprintf("p50 %.2f, max %.2f", o.responses.Quantile(0.5), o.responses.Max()),
			})
		}
	}
	return out
}

// table has a line for each set and configuration.
func (r result) table(sets []set) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "set\tconfiguration\tHIGH misses\tMIDDLE misses\tLOW misses\tHIGH p99 ms\tMIDDLE p99 ms\tLOW p99 ms\traises\tthrottles\tstalls\tlongest ms\truns made")
	for _, run := range r.runs {
		one := run.alone()
		fmt.Fprintf(w, "%s\t%s", run.set.kind, run.configuration)
		for _, level := range levels {
			o := one.of(run.configuration, level.is)
			fmt.Fprintf(w, "\t%d of %d", o.misses, o.jobs)
		}
		for _, level := range levels {
			fmt.Fprintf(w, "\t%.2f", one.of(run.configuration, level.is).responses.Quantile(0.99))
		}
		raises, throttles := run.agentDid()
		fmt.Fprintf(w, "\t%d\t%d\t%d\t%.1f\t%d\n", raises, throttles, len(run.stalls()), float64(run.stood())/1e6, run.attempts)
	}
	_ = w.Flush() // to memory
	for _, run := range r.runs {
		for _, line := range run.discarded {
			fmt.Fprintf(&b, "not counted, as the machine stood still: %s\n", line)
		}
	}
	return b.String()
}

// alone is a result of one run.
func (r run) alone() result { return result{runs: []run{r}} }
