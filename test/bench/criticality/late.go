package main

import (
	"fmt"

	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// late is a High job that ended after its deadline under the agent, with what the log knows of why.
type late struct {
	Task       string  `json:"task"`
	AtMs       float64 `json:"at_ms"` // of its release, since the first
	ResponseMs float64 `json:"response_ms"`
	DeadlineMs float64 `json:"deadline_ms"`
	AskedMs    float64 `json:"asked_ms"`
	RanMs      float64 `json:"ran_ms"`
	LowMs      float64 `json:"low_ms"`
	// StallMs is the longest stall of any job that was under way meanwhile; 0 for none.
	StallMs float64 `json:"stall_ms"`
	// ChargedMs is for how much longer than they asked for the task's last jobs, this one among them, had the core: who enforces
	// budgets charges it to the task, which then waits for later periods to pay.
	ChargedMs float64 `json:"charged_ms"`
	// AfterLate: the job before it was late, too.
	AfterLate bool `json:"after_late"`
	// Core says who had the core from its release to its end, by the kernel's trace; empty without one.
	Core string `json:"core,omitempty"`
}

// String says it in words.
func (l late) String() string {
	why := "asked for no more than its low budget"
	switch {
	case l.StallMs > 0:
		why = fmt.Sprintf("the machine did not run the core for %.1f ms", l.StallMs)
	case l.AfterLate:
		why = "began late: the job before it was late"
	case l.AskedMs > l.LowMs:
		why = "an overrun"
	}
	if l.ChargedMs > l.LowMs/2 {
		why += fmt.Sprintf("; it and the jobs before it were charged %.2f ms too much", l.ChargedMs)
	}
	if l.Core != "" {
		why += "; the core had " + l.Core
	}
	return fmt.Sprintf("%s late at %.0f ms: %.2f ms of %.0f, asked for %.2f, ran %.2f, low budget %.2f: %s",
		l.Task, l.AtMs, l.ResponseMs, l.DeadlineMs, l.AskedMs, l.RanMs, l.LowMs, why)
}

const (
	// mostLate bounds the list.
	mostLate = 20
	// chargedJobs is how many jobs of a task ChargedMs looks at.
	chargedJobs = 10
)

// lateHigh are the first High jobs that were late, under the agent.
func (r run) lateHigh() []late {
	if r.configuration != elastic && r.configuration != reserved {
		return nil
	}
	var out []late
	for i, s := range r.set.servers {
		if s.Criticality == rt.High {
			out = append(out, r.lateJobs(s, i)...)
		}
	}
	return out[:min(len(out), mostLate)]
}

func (r run) lateJobs(s rt.Server, task int) []late {
	l, out := r.logs[task], []late(nil)
	for i, j := range l.Jobs {
		if j.Response <= l.Deadline {
			continue
		}
		under := span{j.Release, j.Release + j.Response}
		out = append(out, late{
			Task: l.Name, AtMs: ms(j.Release - l.Jobs[0].Release), ResponseMs: ms(j.Response), DeadlineMs: ms(l.Deadline), AskedMs: ms(j.Demand), RanMs: ms(j.CPU),
			LowMs: float64(s.Low) / 1e3, StallMs: ms(r.stalledIn(under)), AfterLate: i > 0 && l.Jobs[i-1].Response > l.Deadline,
			ChargedMs: ms(r.charged(task, i)), Core: r.recording.whoRan(under),
		})
	}
	return out
}

// charged is what the jobs of a task up to one had of the core beyond what they asked for, in nanoseconds.
func (r run) charged(task, job int) int64 {
	sum := int64(0)
	for i := max(0, job+1-chargedJobs); i <= job; i++ {
		sum += r.excess(task, i)
	}
	return sum
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }
