package main

import (
	"math"
	"slices"

	"github.com/mainspring-rt/mainspring/test/bench/joblog"
)

// span of time on CLOCK_MONOTONIC, in nanoseconds.
type span struct{ from, to int64 }

// longStall is the longest stall, in nanoseconds, with which a run is taken as it is: a quarter of the short period.
const longStall = shortUs * 1000 / 4

// stallNs is how much longer than it asked for a job must have had the core to count as a stall.
const stallNs = 500_000

// stall is a time for which the core stood still, whoever had it: a hypervisor ran something else there, or an
// interrupt took long. No scheduler on the machine can prevent it, and all that waits for the core then is late.
type stall struct {
	span
	ns int64 // at least
}

// excess is how much longer than it asked for a job had the core, in nanoseconds. Jobs only compute, so that was not
// theirs. What the hypervisor does not tell the kernel is charged to the job; what it tells (steal) is not, and
// only the trace shows it.
func (r run) excess(task, job int) int64 {
	j := r.logs[task].Jobs[job]
	had := j.CPU
	if r.held != nil {
		had = max(had, r.held[task][job])
	}
	return had - j.Demand
}

// stalls are the gaps in the trace, and what only the jobs noticed.
func (r run) stalls() []stall {
	out := slices.Clone(r.recording.gaps)
	for i, l := range r.logs {
		for k, j := range l.Jobs {
			s := stall{span{j.Release, j.Release + j.Response}, r.excess(i, k)}
			if s.ns >= stallNs && !slices.ContainsFunc(r.recording.gaps, s.touches) {
				out = append(out, s)
			}
		}
	}
	return out
}

func (s stall) touches(other stall) bool { return s.overlaps(other.span) }

func (s span) overlaps(other span) bool { return s.from < other.to && other.from < s.to }

// stood is the longest stall between the first release and the last end of a job, in nanoseconds.
func (r run) stood() int64 {
	longest, all := int64(0), r.underWay()
	for _, s := range r.stalls() {
		if s.overlaps(all) {
			longest = max(longest, s.ns)
		}
	}
	return longest
}

// underWay is the time in which there were jobs.
func (r run) underWay() span {
	all := span{from: math.MaxInt64}
	for _, l := range r.logs {
		for _, j := range l.Jobs {
			all.from, all.to = min(all.from, j.Release), max(all.to, j.Release+j.Response)
		}
	}
	return all
}

// stalledIn is the longest stall in a span; 0 for none.
func (r run) stalledIn(in span) int64 {
	longest := int64(0)
	for _, s := range r.stalls() {
		if s.overlaps(in) {
			longest = max(longest, s.ns)
		}
	}
	return longest
}

// beside counts the late jobs of a task whose time from release to end touches a stall.
func beside(l joblog.Log, stalls []stall) int {
	n := 0
	for _, j := range l.Jobs {
		if j.Response <= l.Deadline {
			continue
		}
		for _, s := range stalls {
			if s.overlaps(span{j.Release, j.Release + j.Response}) {
				n++
				break
			}
		}
	}
	return n
}

// heldOf is for how long each job's task had the core between the end of the job before, or its release, and its end,
// by a trace; nil without one. The jobs of a task end in order.
func heldOf(logs []joblog.Log, turns []turn) [][]int64 {
	if len(turns) == 0 {
		return nil
	}
	of := map[string][]span{}
	for _, t := range turns {
		of[t.name] = append(of[t.name], t.span)
	}
	out := make([][]int64, len(logs))
	for i, l := range logs {
		out[i] = held(l.Jobs, of[l.Name])
	}
	return out
}

func held(jobs []joblog.Job, turns []span) []int64 {
	out := make([]int64, len(jobs))
	began := int64(0)
	for k, j := range jobs {
		from, end := max(j.Release, began), j.Release+j.Response
		for len(turns) > 0 && turns[0].to <= from {
			turns = turns[1:]
		}
		for _, t := range turns {
			if t.from >= end {
				break
			}
			out[k] += min(t.to, end) - max(t.from, from)
		}
		began = end
	}
	return out
}
