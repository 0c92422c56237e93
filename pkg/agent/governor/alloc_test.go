package governor_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// discard takes every budget, and every fifth write it refuses.
type discard struct{ writes int }

func (d *discard) Set(int, int64) error {
	if d.writes++; d.writes%5 == 0 {
		return errBusy
	}
	return nil
}

// Not parallel: testing.AllocsPerRun counts the whole process.
func TestTheHotPathAllocatesNothing(t *testing.T) {
	var servers []governor.Server
	plan := table.Plan{Core: 1, ThresholdPpm: 615_000}
	for i := range 20 {
		s := limited(srv(i, []string{"High", "Middle", "Low"}[i%3], 300, 500))
		s.DwellUs = 1
		servers = append(servers, s)
		if s.Criticality == "Low" {
			plan.Squeeze = append(plan.Squeeze, table.Squeeze{ID: s.ID, FloorUs: 100})
		}
	}
	now := start
	core := governor.New(governor.Options{Seen: func(int) int64 { return now - 15*ms }})
	set := &discard{}
	core.Load(servers, plan, now, set)
	var kinds [governor.Recovered + 1]int
	var last governor.Outcome
	n := testing.AllocsPerRun(500, func() {
		for slot := range 20 {
			last = core.Alarm(slot, now-ms, now, set)
			kinds[last.Kind]++
			kinds[core.End(slot, now-ms, now, set).Kind]++
			now += ms
			core.Tick(now, set)
			if slot == 0 {
				now += 1500 * ms
				core.Tick(now, set)
			}
			kinds[core.Clean(slot, now, set).Kind]++
			core.State(slot)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	if kinds[governor.Raised] == 0 || kinds[governor.Recovered] == 0 || kinds[governor.Refused] == 0 || core.State(2).Squeezes == 0 {
		t.Errorf("too little happened: %v, %d squeezes", kinds, core.State(2).Squeezes)
	}
}

func BenchmarkAlarm(b *testing.B) {
	var servers []governor.Server
	for i := range 20 {
		s := srv(i, "High", 200, 400)
		s.DwellUs = 1
		servers = append(servers, s)
	}
	core, set, now := governor.New(governor.Options{}), &discard{}, start
	core.Load(servers, table.Plan{Core: 1, ThresholdPpm: 900_000}, now, set)
	for i := 0; b.Loop(); i++ {
		now += ms
		core.Alarm(i%20, now, now, set)
		core.Clean((i+10)%20, now, set)
	}
}
