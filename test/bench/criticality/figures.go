package main

import (
	"fmt"
	"strings"

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

func (o *outcome) add(l joblog.Log, stalls []stall) {
	o.jobs += l.Released
	o.misses += l.Misses()
	o.beside += beside(l, stalls)
	o.responses = append(o.responses, l.Responses()...)
}

// of sums up what a run saw of a criticality.
func (r run) of(c rt.Criticality) outcome { return sumUp([]run{r}, c) }

func sumUp(runs []run, c rt.Criticality) outcome {
	var o outcome
	for _, run := range runs {
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

// kept are the runs of a configuration that count, of sets that squeeze or of the others.
func (r result) kept(configuration string, squeezes bool) []run {
	var out []run
	for _, run := range r.runs {
		if run.kept && run.configuration == configuration && run.set.kind.squeezes == squeezes {
			out = append(out, run)
		}
	}
	return out
}

// String is a run in a line.
func (r run) String() string {
	var parts []string
	for _, level := range levels {
		o := r.of(level.is)
		parts = append(parts, fmt.Sprintf("%s %d of %d (p99 %.1f ms)", level.name, o.misses, o.jobs, o.responses.Quantile(0.99)))
	}
	d := r.agent
	return fmt.Sprintf("%s %s: misses %s; raises %d, partial %d, squeezes %d, throttles %d; %d stalls, the longest %.1f ms", r.set.kind.name, r.configuration,
		strings.Join(parts, ", "), d.Raises, d.Partial, d.Squeezes, d.Throttles, len(r.stalls()), float64(r.stood())/1e6)
}

// goal of a configuration for a criticality, given what happened with budgets fixed at low. Low work is to be
// degraded, but never starved: of its jobs, 5 % more may miss their deadline.
func goal(configuration string, c rt.Criticality, fixed outcome) string {
	switch {
	case configuration == static && c == rt.High:
		return "> 0" // or the goal of elastic shows nothing
	case configuration == static || configuration == cfs:
		return ""
	case c == rt.High && configuration == reserved:
		return "0"
	case c == rt.High:
		return fmt.Sprintf("<= %d", fixed.misses/20)
	case c == rt.Middle:
		return fmt.Sprintf("<= %d", fixed.misses)
	}
	return fmt.Sprintf("<= %d", fixed.misses+fixed.jobs*5/100)
}

// figures of a backend: over both sets in which everybody's high budget fits, then of the one that squeezes, then
// every run.
func (r result) figures(seed uint64) []report.Figure {
	out := []report.Figure{{Key: "backend", Text: r.backend}, {Key: "seed", Value: float64(seed)}}
	out = append(out, r.admitted()...)
	out = append(out, r.outcomes("", false, configurations...)...)
	out = append(out, r.squeezed()...)
	return append(out, report.Figure{Key: "runs", Data: r.rows()})
}

// admitted tells how many containers admission takes: in the sets whose high budgets fit.
func (r result) admitted() []report.Figure {
	own, charged, total := 0, 0, 0.0
	var why []string
	for _, s := range r.sets {
		a := r.admissions[s.kind.name]
		if s.kind.squeezes {
			continue
		}
		own += s.containers(a.own)
		charged += s.containers(a.charged)
		total = max(total, 100*s.total)
		why = append(why, fmt.Sprintf("%s: %s", s.kind.name, a.own))
	}
	return []report.Figure{
		{Key: "admitted", Value: float64(own), Note: "containers, with the granularity that the node publishes: " + strings.Join(why, "; ")},
		{Key: "admitted_charged", Value: float64(charged), Note: fmt.Sprintf("the same test with %d us charged, as no job needs more than its high budget", granularityUs)},
		{Key: "granularity_us", Value: float64(r.node.GranularityUs), Note: "as the node publishes it"},
		{Key: "total_percent", Value: total, Note: "of the core by high budgets, the denser set"},
		r.scaleToAdmit(),
	}
}

// outcomes of sets that squeeze, or of the others, with a prefix for the keys.
func (r result) outcomes(prefix string, squeezes bool, configurations ...string) []report.Figure {
	var out []report.Figure
	seen := map[string]map[rt.Criticality]outcome{}
	for _, configuration := range configurations {
		seen[configuration] = map[rt.Criticality]outcome{}
		for _, level := range levels {
			seen[configuration][level.is] = sumUp(r.kept(configuration, squeezes), level.is)
		}
	}
	for _, level := range levels {
		out = append(out, report.Figure{Key: prefix + "jobs_" + level.name, Value: float64(seen[static][level.is].jobs), Note: "of each configuration"})
	}
	for _, level := range levels {
		for _, configuration := range configurations {
			o := seen[configuration][level.is]
			f := report.Figure{Key: prefix + "misses_" + level.name + "_" + configuration, Value: float64(o.misses), Note: noteOf(o)}
			if !squeezes {
				f.Goal = goal(configuration, level.is, seen[static][level.is])
			}
			out = append(out, f)
		}
	}
	for _, level := range levels {
		for _, configuration := range configurations {
			o := seen[configuration][level.is]
			out = append(out, report.Figure{
				Key: prefix + "response_p99_ms_" + level.name + "_" + configuration, Value: o.responses.Quantile(0.99),
				Note: fmt.Sprintf("p50 %.2f, max %.2f", o.responses.Quantile(0.5), o.responses.Max()),
			})
		}
	}
	return out
}

func noteOf(o outcome) string {
	if o.beside == 0 {
		return ""
	}
	return fmt.Sprintf("%d of them while the machine did not run the core", o.beside)
}
