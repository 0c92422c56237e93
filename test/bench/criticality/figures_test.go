package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/test/bench/joblog"
)

func log(jobs ...joblog.Job) joblog.Log {
	return joblog.Log{Name: "t", Period: 10e6, Deadline: 10e6, Released: len(jobs), Jobs: jobs}
}

var pair = []rt.Server{{ID: "h", Criticality: rt.High, Period: 10_000, Low: 1000, High: 2000}, {ID: "l", Criticality: rt.Low, Period: 10_000, Low: 1000, High: 1000}}

var kept = run{
	configuration: reserved, attempt: 2, kept: true, load1: 0.5, agent: deeds{Raises: 3, Throttles: 1},
	set: set{kind: kinds[0], servers: pair},
	logs: []joblog.Log{
		log(joblog.Job{Response: 2e6, CPU: 1e6, Demand: 1e6}, joblog.Job{Release: 10e6, Response: 12e6, CPU: 1e6, Demand: 1e6}, joblog.Job{Release: 30e6, Response: 11e6, CPU: 1e6, Demand: 1e6}),
		log(joblog.Job{Release: 20e6, Response: 6e6, CPU: 5e6, Demand: 1e6}),
	},
}

// disturbed is another attempt at it.
var disturbed = run{
	configuration: reserved, attempt: 1, set: kept.set, load1: 7, agent: deeds{Throttles: 99},
	logs: []joblog.Log{log(joblog.Job{Response: 50e6, CPU: 30e6, Demand: 1e6}), log()},
}

var full = run{
	configuration: elastic, kept: true, set: set{kind: kinds[2], total: 0.95, servers: pair}, logs: kept.logs, agent: deeds{Raises: 5, Squeezes: 2},
	budgets: []snapshot{{At: 0, Budgets: []int64{1000, 1000}}, {At: 100, Budgets: []int64{2000, 500}}, {At: 200, Budgets: []int64{1000, 1000}}, {At: 300, Budgets: []int64{2000, 500}}},
}

var example = result{
	backend: "fifo", node: table.Report{Backend: "fifo", GranularityUs: 50}, sets: []set{kept.set, full.set},
	admissions: map[string]admission{kinds[0].name: {own: rt.Verdict{Admitted: true}, charged: rt.Verdict{Admitted: true}}, squeeze: {charged: rt.Verdict{Admitted: true}}},
	runs:       []run{disturbed, kept, full},
}

func TestOutcome(t *testing.T) {
	o := sumUp(example.kept(reserved, false), rt.High)
	if o.jobs != 3 || o.misses != 2 || o.beside != 1 || o.responses.Max() != 12 {
		t.Errorf("got %+v; want 2 misses of 3 jobs, one beside the stall of the other task, and nothing of the run that does not count", o)
	}
	if o := sumUp(example.kept(static, false), rt.High); o.jobs != 0 || o.misses != 0 {
		t.Errorf("got %+v of a configuration that did not run", o)
	}
}

func figures(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, f := range example.figures(1) {
		if _, twice := out[f.Key]; twice {
			t.Errorf("key %q is there twice", f.Key)
		}
		out[f.Key] = f.Value
		if f.Data != nil {
			out[f.Key] = f.Data
		}
	}
	return out
}

func TestFiguresHaveTheKeys(t *testing.T) {
	got := figures(t)
	want := []string{"backend", "seed", "admitted", "admitted_charged", "granularity_us", "total_percent", "scale_to_admit", "runs", "squeeze_admitted", "squeeze_partial", "squeeze_restored"}
	for _, c := range []string{"high", "middle", "low"} {
		want = append(want, "jobs_"+c, "squeeze_jobs_"+c, "squeeze_misses_"+c+"_static", "squeeze_misses_"+c+"_elastic")
		for _, configuration := range []string{"cfs", "static", "elastic", "reserved"} {
			want = append(want, "misses_"+c+"_"+configuration, "response_p99_ms_"+c+"_"+configuration)
		}
	}
	for _, key := range want {
		if _, there := got[key]; !there {
			t.Errorf("key %q is missing", key)
		}
	}
	if got["admitted"] != 2.0 || got["squeeze_admitted"] != 0.0 {
		t.Errorf("admitted %v and %v; want 2 containers, and none of the set that only the charge admits", got["admitted"], got["squeeze_admitted"])
	}
}

// A run that was made again is shown as fully as the one that counts.
func TestDisturbedRunsAreShown(t *testing.T) {
	raw, err := json.Marshal(figures(t)["runs"])
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	if err := json.Unmarshal(raw, &rows); err != nil {
		t.Fatal(err)
	}
	first := rows[0]
	if len(rows) != 3 || first.Kept || first.Attempt != 1 || first.Load1 != 7 || first.Agent.Throttles != 99 || first.LongestMs != 29 || first.Stalls != 1 {
		t.Errorf("got %+v", rows)
	}
	if l := first.Levels["high"]; l.Misses != 1 || l.Jobs != 1 || l.Max != 50 || l.P99 != 50 || l.P50 != 50 || len(first.Late) != 1 {
		t.Errorf("got %+v of the disturbed run", first)
	}
	lines := strings.Split(example.table(), "\n")
	if !strings.Contains(lines[1], "1 (not counted)") || !strings.Contains(lines[1], "1 of 1") || !strings.Contains(lines[1], "99") {
		t.Errorf("the table says %q of it", lines[1])
	}
}

func TestKeepBest(t *testing.T) {
	runs := []run{disturbed, kept, disturbed}
	for i := range runs {
		runs[i].kept = false
	}
	keepBest(runs)
	if runs[0].kept || !runs[1].kept || runs[2].kept {
		t.Errorf("kept %v %v %v; want the one in which the machine stood still for the shortest time", runs[0].kept, runs[1].kept, runs[2].kept)
	}
}

func TestLateHigh(t *testing.T) {
	got := kept.lateHigh()
	if len(got) != 2 || got[0].AtMs != 10 || got[0].StallMs != 4 || !got[1].AfterLate {
		t.Fatalf("got %+v", got)
	}
	if text := got[0].String(); !strings.Contains(text, "did not run the core for 4.0 ms") {
		t.Errorf("got %q", text)
	}
	other := kept
	other.configuration = static
	if other.lateHigh() != nil {
		t.Error("late jobs of the baseline are listed")
	}
}

func TestWayGiven(t *testing.T) {
	if w := full.wayGiven(); w.restored != 1 || w.left != 1 || w.percent != 50 {
		t.Errorf("got %+v; want given back once, squeezed at the end and half of the time", w)
	}
}

func TestDeedsSince(t *testing.T) {
	server := table.ServerReport{Overruns: 5, Throttles: 4, Raises: 3, Partial: 2, Denied: 1, Refused: 6, Squeezes: 7, Recoveries: 8}
	before, after := deedsOf(table.Report{Servers: []table.ServerReport{server}}), deedsOf(table.Report{Servers: []table.ServerReport{server, server}})
	if after.since(before) != before {
		t.Errorf("got %+v; want %+v", after.since(before), before)
	}
}

func TestGoals(t *testing.T) {
	for _, c := range []struct {
		configuration string
		is            rt.Criticality
		fixed         int
		want          string
	}{
		{reserved, rt.High, 100, "0"}, {elastic, rt.High, 100, "<= 5"}, {elastic, rt.Middle, 30, "<= 30"}, {reserved, rt.Low, 40, "<= 90"}, {static, rt.High, 9, "> 0"}, {static, rt.Low, 9, ""}, {cfs, rt.Low, 9, ""},
	} {
		if got := goal(c.configuration, c.is, outcome{misses: c.fixed, jobs: 1000}); got != c.want {
			t.Errorf("%s %s: goal %q; want %q", c.configuration, c.is, got, c.want)
		}
	}
}
