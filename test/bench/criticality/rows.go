package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// row is everything about a run, whether it counts or not.
type row struct {
	Backend       string           `json:"backend,omitempty"` // none under plain CFS
	Set           string           `json:"set"`
	Configuration string           `json:"configuration"`
	Attempt       int              `json:"attempt"`
	Kept          bool             `json:"kept"`
	Load1         float64          `json:"load1"`
	Levels        map[string]level `json:"levels"`
	Agent         deeds            `json:"agent"`
	Stalls        int              `json:"stalls"`
	LongestMs     float64          `json:"longest_stall_ms"`
	Late          []late           `json:"late_high,omitempty"`
	Budgets       []snapshot       `json:"budgets,omitempty"`
}

// level is what the tasks of one criticality saw.
type level struct {
	Jobs    int     `json:"jobs"`
	Misses  int     `json:"misses"`
	Stalled int     `json:"misses_beside_stalls"`
	P50     float64 `json:"response_p50_ms"`
	P99     float64 `json:"response_p99_ms"`
	Max     float64 `json:"response_max_ms"`
}

// rows are all runs, in their order.
func (r result) rows() []row {
	var out []row
	for _, run := range r.runs {
		one := row{
			Set: run.set.kind.name, Configuration: run.configuration, Attempt: run.attempt, Kept: run.kept, Load1: run.load1, Levels: map[string]level{},
			Agent: run.agent, Stalls: len(run.stalls()), LongestMs: float64(run.stood()) / 1e6, Late: run.lateHigh(), Budgets: run.budgets,
		}
		if run.configuration != cfs {
			one.Backend = r.backend
		}
		for _, of := range levels {
			o := run.of(of.is)
			one.Levels[of.name] = level{o.jobs, o.misses, o.beside, o.responses.Quantile(0.5), o.responses.Quantile(0.99), o.responses.Max()}
		}
		out = append(out, one)
	}
	return out
}

// columns of a run's row, the same in the table and on the page.
var columns = []string{
	"set", "configuration", "run", "HIGH misses", "MIDDLE misses", "LOW misses", "HIGH p99 ms", "MIDDLE p99 ms", "LOW p99 ms", "HIGH max ms",
	"raises", "partial", "denied", "squeezes", "recoveries", "throttles", "stalls", "longest ms",
}

func (r row) cells() []string {
	made := fmt.Sprint(r.Attempt)
	if !r.Kept {
		made += " (not counted)"
	}
	out := []string{r.Set, r.Configuration, made}
	for _, of := range levels {
		out = append(out, fmt.Sprintf("%d of %d", r.Levels[of.name].Misses, r.Levels[of.name].Jobs))
	}
	for _, of := range levels {
		out = append(out, fmt.Sprintf("%.2f", r.Levels[of.name].P99))
	}
	out = append(out, fmt.Sprintf("%.2f", r.Levels["high"].Max))
	for _, n := range []uint64{r.Agent.Raises, r.Agent.Partial, r.Agent.Denied, r.Agent.Squeezes, r.Agent.Recoveries, r.Agent.Throttles} {
		out = append(out, fmt.Sprint(n))
	}
	return append(out, fmt.Sprint(r.Stalls), fmt.Sprintf("%.1f", r.LongestMs))
}

// table has a line for each run, and one for each High job that was late under the agent.
func (r result) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	for _, row := range r.rows() {
		fmt.Fprintln(w, strings.Join(row.cells(), "\t"))
	}
	_ = w.Flush() // to memory
	for _, row := range r.rows() {
		for _, l := range row.Late {
			fmt.Fprintf(&b, "%s %s, run %d: %s\n", row.Set, row.Configuration, row.Attempt, l)
		}
	}
	return b.String()
}
