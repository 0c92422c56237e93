package main

import "github.com/mainspring-rt/mainspring/test/bench/joblog"

// span of time on CLOCK_MONOTONIC, in nanoseconds.
type span struct{ from, to int64 }

// longStall is the longest stall, in nanoseconds, with which a run is taken as it is.
const longStall = 2_000_000

// stallNs is how much more CPU time than it asked for a job must have been charged to count as a stall.
const stallNs = 500_000

// stalls are the jobs that were charged far more CPU time than they asked for. Jobs only compute, so that was
// not theirs: a hypervisor ran something else on the core and the kernel did not know, or an interrupt took
// long. No scheduler on the machine can prevent it, and all that waits for the core then is late.
func (r run) stalls() []span {
	var out []span
	for _, l := range r.logs {
		for _, j := range l.Jobs {
			if j.CPU-j.Demand >= stallNs {
				out = append(out, span{j.Release, j.Release + j.Response})
			}
		}
	}
	return out
}

// stood is the longest stall, in nanoseconds.
func (r run) stood() int64 {
	longest := int64(0)
	for _, l := range r.logs {
		for _, j := range l.Jobs {
			longest = max(longest, j.CPU-j.Demand)
		}
	}
	return longest
}

// beside counts the late jobs of a task whose time from release to end touches a stall.
func beside(l joblog.Log, stalls []span) int {
	n := 0
	for _, j := range l.Jobs {
		if j.Response <= l.Deadline {
			continue
		}
		for _, s := range stalls {
			if j.Release < s.to && s.from < j.Release+j.Response {
				n++
				break
			}
		}
	}
	return n
}
