package main

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/test/bench/joblog"
)

func TestTakeCountsFromSamples(t *testing.T) {
	var r round
	r.take([]client.Sample{
		{Instant: 5_000, Detected: 6_000, Woken: 8_000, Written: 9_000_000},
		{Instant: 10_000, Detected: 20_000, Woken: 40_000, Written: 45_000, LeadNs: 35_000},
		{Instant: 10_000, Detected: 12_000, Woken: 40_000, Written: 46_000, LeadNs: 35_000},
	}, 10_000)
	if len(r.react) != 2 || r.react.Max() != 36 || r.detect.Max() != 10 || r.wake.Max() != 28 || r.actuate.Max() != 6 {
		t.Errorf("got %+v; want the two reactions since the first release", r)
	}
	if r.inTime() != 0.5 {
		t.Errorf("%v in time; want one of two: written at the very end is in time", r.inTime())
	}
	if r.late != (late{between: 1}) {
		t.Errorf("%s; want the second, in which no phase alone was longer than the lead", r.late)
	}
}

func TestRaisesWithTheWholeLead(t *testing.T) {
	r := round{leadUs: 40}
	r.take([]client.Sample{
		{Instant: 0, Written: 50_000, LeadNs: 35_000},
		{Instant: 0, Written: 30_000, LeadNs: 40_000},
		{Instant: 0, Written: 60_000, LeadNs: 40_000},
	}, 0)
	if got := r.wholeInTime(); got != "0.5000 of 2 with the whole lead" {
		t.Errorf("got %s; the first has a lead of 35 us", got)
	}
}

func TestLateRaisesByPhase(t *testing.T) {
	var r round
	r.take([]client.Sample{
		{Instant: 0, Detected: 11, Woken: 12, Written: 13, LeadNs: 10},
		{Instant: 0, Detected: 1, Woken: 12, Written: 13, LeadNs: 10},
		{Instant: 0, Detected: 1, Woken: 2, Written: 13, LeadNs: 10},
		{Instant: 0, Detected: 1, Woken: 2, Written: 3, LeadNs: 10},
		{Instant: 0, Detected: 11, Woken: 12, Written: 13},
	}, 0)
	if want := (late{detect: 1, wake: 1, actuate: 1}); r.late != want {
		t.Errorf("%s; want %s: without a lead none is late", r.late, want)
	}
}

func TestWakesCountsOnlyWakeUps(t *testing.T) {
	log := joblog.Log{Jobs: []joblog.Job{{Release: 0, Response: 9_000}, {Release: 10_000, Response: 25_000}, {Release: 20_000, Response: 16_000}, {Release: 40_000, Response: 7_000}}}
	if got := wakes(log); len(got) != 3 || got[0] != 7 || got.Max() != 25 {
		t.Errorf("got %v; want 7, 9 and 25 us: the third was due while the second was still to come", got)
	}
}

func TestFloorCost(t *testing.T) {
	if got := (floor{cpuUs: 27.5}).percent(); got != 2.75 {
		t.Errorf("got %v %%; want 2.75: 27.5 ms in each second", got)
	}
}

func TestProgramOf(t *testing.T) {
	if id, is := programOf("pos:\t0\nprog_type:\t26\nprog_id:\t17\n"); !is || id != 17 {
		t.Errorf("got %d, %t", id, is)
	}
	for _, other := range []string{"", "map_id:\t3\n", "prog_id:\tx\n"} {
		if _, is := programOf(other); is {
			t.Errorf("%q is a program", other)
		}
	}
}

// The benchmark's own servers must pass admission, each of their jobs must use up a budget, and none the highest.
func TestRampIsAdmitted(t *testing.T) {
	for _, r := range []ramp{fewServers, manyServers} {
		core, servers := rt.Core{Capacity: rt.MaxCapacity, Granularity: 1, Policy: rt.FixedPriority}, []rt.Server{}
		for _, s := range r.file(bench{}, "", 0).Servers {
			servers = append(servers, rt.Server{ID: s.Name, Criticality: rt.High, Period: s.Period, Low: s.Low, High: s.High, Levels: s.Levels})
		}
		if v := rt.Holds(core, servers); !v.Admitted {
			t.Errorf("%+v: %s", r, v)
		}
	}
}

func TestFiguresHaveExactlyTheKeys(t *testing.T) {
	want := map[string]bool{}
	for _, key := range []string{"react_p50_us", "react_p99_us", "react_p999_us", "react_max_us", "raised_before_end_ratio"} {
		want[key], want["loaded_"+key] = true, true
	}
	for _, key := range []string{"detect_p50_us", "detect_p99_us", "actuate_p50_us", "events", "lost_events", "bpf_ns_per_switch", "cpu_percent", "rss_mib"} {
		want[key] = true
	}
	for _, key := range []string{"floor_wake_p50_us", "floor_wake_p99_us", "floor_wake_p999_us", "floor_cpu_percent"} {
		want[key], want["loaded_"+key] = true, true
	}
	figures, err := findings{floors: []floor{{}, {loaded: true}}, rounds: []round{{}, {leadUs: 200}, {loaded: true}, {loaded: true, leadUs: 200}}}.figures()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		if !want[f.Key] {
			t.Errorf("key %q is not wanted", f.Key)
		}
		delete(want, f.Key)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}
