// Package replay plays a recorded workload back on the simulated cloud, faster than it was, and reports how long pods
// waited, which machines were used, and what they cost.
//
// Plan turns recorded pods into jobs with times of the run; a Runner creates and deletes their Pods; a Tracker measures;
// Summary holds the figures, each with how it was computed.
package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/cli/trace"
)

// Job is one pod of the run.
type Job struct {
	trace.Pod
	At   time.Duration // when it is created, from the start of the run
	Work time.Duration // how long it runs once it has started
}

// Selection says which pods are played, and how fast.
type Selection struct {
	From  time.Duration // first creation time in the trace
	Limit int           // at most so many pods; 0 = all
	Speed float64       // trace seconds per second of the run
}

// Plan selects pods in the order of their creation and scales their times. Every pod keeps its recorded work, from
// placement to deletion, scaled: a pod that starts as late as it did in the trace is deleted at its recorded time.
func Plan(pods []trace.Pod, s Selection) []Job {
	chosen := make([]trace.Pod, 0, len(pods))
	for _, p := range pods {
		if p.Created >= s.From {
			chosen = append(chosen, p)
		}
	}
	slices.SortStableFunc(chosen, func(a, b trace.Pod) int { return cmp.Compare(a.Created, b.Created) })
	if s.Limit > 0 && len(chosen) > s.Limit {
		chosen = chosen[:s.Limit]
	}
	jobs := make([]Job, 0, len(chosen))
	for _, p := range chosen {
		jobs = append(jobs, Job{
			Pod:  p,
			At:   scaled(p.Created-chosen[0].Created, s.Speed),
			Work: scaled(p.Work(), s.Speed),
		})
	}
	return jobs
}

func scaled(d time.Duration, speed float64) time.Duration {
	return time.Duration(float64(d) / speed)
}

// Span is the trace time from the first to the last creation.
func Span(jobs []Job) time.Duration {
	if len(jobs) == 0 {
		return 0
	}
	return jobs[len(jobs)-1].Created - jobs[0].Created
}
