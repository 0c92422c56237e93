package main

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/test/bench/joblog"
)

func TestStolenTimeIsAStall(t *testing.T) {
	jobs := []joblog.Job{{Release: 0, Response: 5e6, CPU: 1e6, Demand: 1e6}, {Release: 4e6, Response: 9e6, CPU: 1e6, Demand: 1e6}}
	// The thread had the core across both jobs, and then again; the kernel knows that 4 ms of it were stolen.
	turns := []turn{{span: span{0, 1e6}, name: "t"}, {span: span{1e6, 4e6}, name: "other"}, {span: span{4e6, 6e6}, name: "t"}, {span: span{8e6, 20e6}, name: "t"}}
	r := run{logs: []joblog.Log{log(jobs...)}}
	if r.stood() != 0 || len(r.stalls()) != 0 {
		t.Errorf("without a trace: %d, %v", r.stood(), r.stalls())
	}
	r.held = heldOf(r.logs, turns)
	if want := []int64{2e6, 6e6}; !slices.Equal(r.held[0], want) {
		t.Errorf("held %v; want %v", r.held, want)
	}
	r.recording.gaps = []stall{{span{30e6, 40e6}, 6e6}} // after the last job
	if r.stood() != 5e6 || len(r.stalls()) != 3 || r.stalledIn(span{12e6, 13e6}) != 5e6 || r.stalledIn(span{14e6, 15e6}) != 0 {
		t.Errorf("got %d, %v", r.stood(), r.stalls())
	}
}
