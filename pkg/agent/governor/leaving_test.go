package governor_test

import (
	"slices"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
)

// leaves has a slot leave the core in the next table.
func (b *bench) leaves(slot int) {
	for i := range b.servers {
		b.servers[i].Leaving = b.servers[i].Slot == slot
	}
}

// left has it gone.
func (b *bench) left() {
	b.servers = slices.DeleteFunc(b.servers, func(s governor.Server) bool { return s.Leaving })
}

// A plan counts without the servers that leave. So no server's raise is given back, no reserve is taken for a raise, and
// no server gives way for their room. They keep it until they have gone.
func TestWhoLeavesIsNotCounted(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000,
		srv(0, "High", 1000, 2000), reserved(srv(1, "High", 1000, 2000)), srv(2, "Low", 1000, 1000), srv(3, "High", 3500, 3500), srv(4, "High", 500, 500)).squeezes(2)
	b.plan.MaxRaised = 1
	b.begun()
	b.alarm(0, 0, governor.Raised)
	b.servers[3], b.servers[4] = srv(3, "High", 8000, 8000), srv(4, "High", 3000, 4000)
	b.leaves(3)
	b.load(0)
	b.has(2000, 2000, 1000, 3500, 500)
	if raised, s := b.Raised(), b.State(1); raised != 1 || s.LevelUs != 1000 {
		t.Errorf("%d are raised, %+v; want slot 0 alone to be", raised, s)
	}
	b.tickFor(50 * ms)
	b.has(2000, 2000, 1000, 3500, 500)
	b.left()
	b.load(0)
	b.tickFor(50 * ms)
	b.has(2000, 2000, 1000)
	if got := b.State(4).BudgetUs; got != 3000 || b.Promised() != 900_000 {
		t.Errorf("slot 4 has %d us, %d ppm are promised; want 3000 us, and its raise promised", got, b.Promised())
	}
}

// Who leaves gets no more here, whatever the table gives it, be it that it gave way and that there is room again.
func TestWhoLeavesGetsNoMore(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000), srv(1, "Low", 4000, 4000)).squeezes(1).begun()
	b.alarm(0, 0, governor.Raised)
	b.servers[1] = srv(1, "Low", 4500, 4500)
	b.leaves(1)
	b.load(0)
	b.alarm(1, 0, governor.Counted)
	b.tickFor(20 * ms)
	b.has(4000, 2000)
	if s := b.State(1); s.Waiting {
		t.Errorf("%+v; want it not to wait here", s)
	}
	b.pass(2000 * ms)
	b.clean(0, governor.Recovered)
	b.tickFor(40 * ms)
	b.has(2000, 2000)
}

// A raise that a leaving server gives back helps no other, nor does its giving way: its room comes soon.
func TestWhoLeavesKeepsWhatItHas(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000), srv(1, "High", 2000, 4000)).begun()
	b.alarm(0, 0, governor.Raised)
	b.alarm(1, 0, governor.Raised)
	b.plan.ThresholdPpm = 300_000
	b.leaves(1)
	b.load(0)
	b.has(2000, 4000)

	b = newBenchSerial(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000), srv(1, "Low", 4000, 4000)).squeezes(1).begun()
	b.leaves(1) // by a plan that lags, for which it is a victim
	b.load(0)
	b.alarm(0, 0, governor.Raised)
	b.has(4000, 4000)
}

// One that was to leave and could not is counted again: what is in force stays, and the least that the table asks for comes before raises.
func TestWhoCouldNotLeaveIsCountedAgain(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000), srv(1, "High", 500, 600), srv(2, "High", 3000, 3000)).begun()
	b.alarm(0, 0, governor.Raised)
	b.servers[1] = srv(1, "High", 3000, 3500)
	b.leaves(2)
	b.load(0)
	b.has(4000, 500, 3000)
	b.leaves(-1)
	b.load(0)
	b.tickFor(20 * ms)
	b.has(2000, 3000, 3000)
}

// A window of a Limited server that leaves goes to no other before it has gone, and no server has to give up its own for
// it.
func TestTheWindowOfWhoLeaves(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, limited(srv(0, "High", 2000, 2500)), limited(srv(1, "High", 2000, 2500))).begun()
	b.alarm(0, 0, governor.Raised)
	b.alarm(1, 0, governor.Raised)
	b.plan.MaxRaised = 1
	b.leaves(1)
	b.load(0)
	b.has(2500, 2500)
	b.left()
	b.load(0)
	b.has(2500)
}

// A server that is raised beside one that leaves asks victims for all that it lacks, as that one keeps its room until it
// has gone, which may take long.
func TestARaiseBesideWhoLeaves(t *testing.T) {
	b := newBenchSerial(t, governor.Options{EDF: true}, 900_000, srv(0, "High", 2000, 4000), srv(1, "Low", 2000, 2000), srv(2, "Low", 4000, 4000)).squeezes(1).begun()
	b.leaves(2)
	b.load(0)
	b.alarm(0, 0, governor.Partial)
	b.tickFor(200 * ms)
	b.has(4000, 1000, 4000)
}
