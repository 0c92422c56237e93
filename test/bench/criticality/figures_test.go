package main

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/test/bench/joblog"
)

func log(jobs ...joblog.Job) joblog.Log {
	return joblog.Log{Period: 10e6, Deadline: 10e6, Released: len(jobs), Jobs: jobs}
}

var example = result{backend: "fifo", runs: []run{{
	configuration: reserved,
	set:           set{kind: "a", servers: []rt.Server{{ID: "h", Criticality: rt.High}, {ID: "l", Criticality: rt.Low}}},
	logs: []joblog.Log{
		log(joblog.Job{Response: 2e6, CPU: 1e6, Demand: 1e6}, joblog.Job{Release: 10e6, Response: 12e6, CPU: 1e6, Demand: 1e6}, joblog.Job{Release: 30e6, Response: 11e6, CPU: 1e6, Demand: 1e6}),
		log(joblog.Job{Release: 20e6, Response: 6e6, CPU: 5e6, Demand: 1e6}),
	},
}}}

func TestOutcome(t *testing.T) {
	o := example.of(reserved, rt.High)
	if o.jobs != 3 || o.misses != 2 || o.beside != 1 || o.responses.Max() != 12 {
		t.Errorf("got %+v; want 2 misses of 3 jobs, one beside the stall of the other task", o)
	}
	if o := example.of(static, rt.High); o.jobs != 0 || o.misses != 0 {
		t.Errorf("got %+v of a configuration that did not run", o)
	}
}

func TestFiguresHaveExactlyTheKeys(t *testing.T) {
	want := map[string]bool{"backend": true, "seed": true, "admitted": true}
	for _, c := range []string{"high", "middle", "low"} {
		want["jobs_"+c] = true
		for _, configuration := range []string{"cfs", "static", "elastic", "reserved"} {
			want["misses_"+c+"_"+configuration] = true
			want["response_p99_ms_"+c+"_"+configuration] = true
		}
	}
	for _, f := range example.figures(nil, 1) {
		if !want[f.Key] {
			t.Errorf("key %q is not wanted", f.Key)
		}
		delete(want, f.Key)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func TestGoals(t *testing.T) {
	for _, c := range []struct {
		configuration string
		is            rt.Criticality
		fixed         int
		want          string
	}{
		{reserved, rt.High, 100, "0"}, {elastic, rt.High, 100, "<= 5"}, {elastic, rt.Middle, 30, "<= 30"}, {reserved, rt.Low, 40, "<= 90"}, {static, rt.High, 9, ""}, {cfs, rt.Low, 9, ""},
	} {
		if got := goal(c.configuration, c.is, outcome{misses: c.fixed, jobs: 1000}); got != c.want {
			t.Errorf("%s %s: goal %q; want %q", c.configuration, c.is, got, c.want)
		}
	}
}
