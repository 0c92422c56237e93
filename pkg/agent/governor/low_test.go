package governor_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
)

// The raise of a Low server is paid for beside those of the others. It ends with the plan that names it, and the newcomer for which the plan was made
// has its room after the deadline of the period under way.
func TestALowServersRaiseEndsForANewcomer(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000), srv(1, "Low", 1000, 5000)).begun()
	b.alarm(1, 0, governor.Raised)
	b.alarm(0, 0, governor.Raised)
	b.has(4000, 5000)
	b.servers[1].RaiseToUs = 0
	b.servers = append(b.servers, srv(2, "Middle", 2000, 4000))
	b.load(0)
	b.has(4000, 1000)
	b.tickFor(10 * ms)
	b.has(4000, 1000, 2000)
	b.alarm(2, 0, governor.Raised)
	b.has(4000, 1000, 4000)
	b.alarm(1, 0, governor.Counted)
	b.has(4000, 1000, 4000)
}

// A core that has less than its plan reckons with keeps the raises of the others paid for, and strikes out those of Low servers that do not fit.
func TestLowIsNotRaisedWhereTheCoreHasLessThanItsPlan(t *testing.T) {
	b := newBench(t, governor.Options{Capacity: 800_000}, 900_000,
		srv(0, "High", 2000, 4000), srv(1, "Low", 1000, 4000), srv(2, "Low", 1000, 3000)).begun()
	b.alarm(1, 0, governor.Counted)
	b.alarm(2, 0, governor.Raised)
	b.alarm(0, 0, governor.Raised)
	b.has(4000, 1000, 3000)
	if s := b.State(1); s.Alarmable {
		t.Errorf("%+v; it has nothing to be told of", s)
	}
}
