package main

import (
	"slices"
	"strings"
	"testing"
)

const traced = `# tracer: nop
          <idle>-0       [001] d..2. 100.000000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=high-0 next_pid=7 next_prio=88
          high-0-7       [001] d..2. 100.002000: sched_switch: prev_comm=high-0 prev_pid=7 prev_prio=88 prev_state=R ==> next_comm=my spinner next_pid=8 next_prio=120
          <idle>-0       [001] d.h2. 100.003000: hrtimer_expire_entry: hrtimer=0000 function=tick_nohz_handler now=1
CPU:1 [LOST 5 EVENTS]
      my spinner-8       [001] d..2. 100.005000: sched_switch: prev_comm=my spinner prev_pid=8 prev_prio=120 prev_state=R ==> next_comm=high-0 next_pid=7 next_prio=120
          high-0-7       [001] ..s1. 100.005100: softirq_entry: vec=3 [action=NET_RX]
          high-0-7       [001] ..s1. 100.005700: softirq_exit: vec=3 [action=NET_RX]
          high-0-7       [001] d..2. 100.006000: sched_switch: prev_comm=high-0 prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
`

func TestWhoRan(t *testing.T) {
	heard, err := parseTrace(strings.NewReader(traced), 1e6)
	turns := heard.turns
	if err != nil || len(turns) != 4 {
		t.Fatalf("got %+v, %v", turns, err)
	}
	wanted := []stall{
		{span{100_000_000_000, 100_002_000_000}, 1e6}, {span{100_003_000_000, 100_005_000_000}, 1e6}, {span{100_005_100_000, 100_005_700_000}, 6e5},
	}
	if !slices.Equal(heard.gaps, wanted) {
		t.Errorf("gaps %+v; want %+v: a tick of 1 ms is none, a long softirq is one", heard.gaps, wanted)
	}
	want := "my spinner (ordinary) 3.00 ms, high-0 1.00 ms, high-0 (ordinary) 1.00 ms; softirqs of that: NET_RX 0.60 ms"
	if got := heard.whoRan(span{100_001_000_000, 100_010_000_000}); got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	if got := (recording{}).whoRan(span{0, 1}); got != "" {
		t.Errorf("got %q without a trace", got)
	}
}

func FuzzParseTrace(f *testing.F) {
	for line := range strings.Lines(traced) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		_, event, ok := parseLine(line)
		if !ok && event != "" {
			t.Errorf("%q is refused, but something was read: %q", line, event)
		}
		if next, ok := parseSwitch(event); !ok && next != (turn{}) {
			t.Errorf("%q is refused, but something was read: %+v", line, next)
		}
	})
}
