package governor_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// The raise of a Low server is paid for beside those of the others. It ends with the plan that names it, and the new
// server for which the plan was made has its room after the deadline of the period under way.
func TestALowServersRaiseEndsForANewServer(t *testing.T) {
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

// The table asks for more than the plan reckons with, so that a Low server's raise has no room beside all promises any longer. What the kernel refuses
// at once has cost the Low server nothing; what it takes ends the raise with the next Tick.
func TestALowServersRaiseEndsOnceTheKernelHasTakenWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{true, false} {
		asked := srv(2, "High", 508, 1168)
		asked.RaiseToUs = 0
		servers := []governor.Server{
			srv(0, "High", 500, 500), srv(1, "Middle", 507, 507), asked, srv(3, "High", 553, 553), srv(4, "Low", 749, 1739), srv(5, "High", 1687, 4534),
		}
		for i := range servers {
			servers[i].Mode = table.Reserved
		}
		b := newBenchSerial(t, governor.Options{}, 900_000, servers...).squeezes(1).begun()
		b.alarm(5, 0, governor.Raised) // in two modes: the victim gives way
		b.tickFor(20 * ms)             // what the victim gave up is free
		b.has(500, 253, 508, 553, 1739, 4534)
		b.servers[2].LeastUs = 1168
		if refused {
			if faults := b.Load(b.servers, b.plan, b.now, refusing{b.kernel, 2}); len(faults) != 1 {
				t.Errorf("faults %v; want that of the kernel", faults)
			}
			b.has(500, 253, 508, 553, 1739, 4534)
			b.servers[2].LeastUs = 508
			b.load(0)
			b.Tick(b.now, b.kernel)
			b.has(500, 253, 508, 553, 1739, 4534)
			continue
		}
		b.load(0)
		b.has(500, 253, 1168, 553, 1739, 4534)
		b.Tick(b.now, b.kernel)
		b.has(500, 253, 1168, 553, 749, 4534)
	}
}
