package governor_test

import (
	"strings"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

func TestTheSameTableTwiceWritesNothing(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000), srv(1, "Low", 1000, 1000), reserved(srv(2, "High", 1000, 2000))).begun()
	b.wrote("0=2000", "2=2000", "1=1000")
	b.alarm(0, 0, governor.Raised)
	b.load(0)
	b.wrote()
	b.has(4000, 1000, 2000)
}

// What shrinks is written before what grows; what is promised until a deadline is not given away before.
func TestBudgetsShrinkBeforeOthersGrow(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 2000), srv(1, "Low", 6000, 6000)).begun()
	b.servers[0], b.servers[1] = srv(0, "High", 6000, 6000), srv(1, "Low", 2000, 2000)
	b.load(0)
	b.wrote("1=2000")
	if !b.State(0).Waiting {
		t.Error("it does not wait")
	}
	b.tickFor(9 * ms)
	b.has(2000, 2000)
	b.tickFor(11 * ms)
	b.has(6000, 2000)
}

func TestGrowingWithRoomIsAtOnce(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 2000)).begun()
	b.servers[0] = srv(0, "High", 6000, 6000)
	b.load(0)
	b.has(6000)
}

// The bandwidth of a server that is gone is free after its deadline, also when it had not run for long: that is not
// known any more.
func TestGoneServers(t *testing.T) {
	b := newBench(t, governor.Options{Seen: func(int) int64 { return 0 }}, 900_000, srv(0, "High", 6000, 6000)).begun()
	b.pass(100 * ms)
	b.servers = []governor.Server{srv(1, "High", 5000, 5000)}
	b.load(0)
	b.wrote()
	if b.Promised() != 600_000 || b.State(0) != (governor.State{}) {
		t.Errorf("%d ppm", b.Promised())
	}
	if next := b.Tick(b.now, b.kernel); next != b.now+10*ms {
		t.Errorf("the next tick is in %d us", (next-b.now)/1000)
	}
	b.tickFor(10 * ms)
	b.wrote("1=5000")
}

// Another holder of the slot is not the one before: neither his raise nor his room is inherited.
func TestASlotThatChangesHands(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 3000, 6000)).begun()
	b.alarm(0, 0, governor.Raised)
	for name, change := range map[string]func(*governor.Server){
		"id":       func(s *governor.Server) { s.ID = "other" },
		"group":    func(s *governor.Server) { s.Cgroup = "/other" },
		"period":   func(s *governor.Server) { s.PeriodUs = 20_000 },
		"deadline": func(s *governor.Server) { s.DeadlineUs = 9000 },
	} {
		b.servers[0] = srv(0, "High", 3000, 6000)
		change(&b.servers[0])
		b.load(0)
		if s := b.State(0); s.Raised || s.Raises != 0 {
			t.Errorf("another %s: %+v", name, s)
		}
		b.tickFor(100 * ms)
		b.wrote("0=3000")
		b.alarm(0, 0, governor.Raised)
	}
}

// A server that is Low from now on, and that the plan does not raise, loses its raise.
func TestARaisedServerOfAnotherClass(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 3000, 6000)).begun()
	b.alarm(0, 0, governor.Raised)
	b.servers[0].Criticality, b.servers[0].RaiseToUs = "Low", 0
	b.load(0)
	if s := b.State(0); s.Raised || s.BudgetUs != 3000 {
		t.Errorf("%+v", s)
	}
}

func TestTheTableIsRefusedWhereItDoesNotFit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, then []governor.Server
		fault       int
		text        string
		budgets     []int64
	}{
		"the most critical come first": {
			nil, []governor.Server{srv(0, "Low", 5000, 5000), srv(1, "High", 5000, 5000)}, 0,
			"core 1: a budget of 5000 us needs 500000 ppm, 500000 of 900000 ppm are promised", []int64{0, 5000},
		},
		"what is in force stays": {
			[]governor.Server{srv(0, "Low", 5000, 5000)}, []governor.Server{srv(0, "Low", 5000, 5000), srv(1, "High", 5000, 5000)}, 1,
			"core 1: a budget of 5000 us needs 500000 ppm, 500000 of 900000 ppm are promised", []int64{5000, 0},
		},
		"the low budget when the least does not fit": {
			[]governor.Server{srv(0, "Low", 5000, 5000)}, []governor.Server{srv(0, "Low", 5000, 5000), least(srv(1, "High", 2000, 5000), 5000)}, 1,
			"a budget of 5000 us", []int64{5000, 2000},
		},
		"it keeps what it has": {
			[]governor.Server{srv(0, "Low", 5000, 5000), srv(1, "Low", 2000, 2000)}, []governor.Server{srv(0, "Low", 5000, 5000), srv(1, "Low", 6000, 6000)}, 1,
			"a budget of 6000 us", []int64{5000, 2000},
		},
		"a server that makes no sense": {
			nil, []governor.Server{srv(0, "Low", 5000, 5000), srv(1, "Highest", 100, 100)}, 1, `criticality: "Highest"`, []int64{5000, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, governor.Options{}, 900_000, test.first...).begun()
			b.servers = test.then
			faults := b.load(1)
			if len(faults) != 1 || faults[0].Slot != test.fault || !strings.Contains(faults[0].Err.Error(), test.text) {
				t.Errorf("%v; want slot %d: %s", faults, test.fault, test.text)
			}
			b.tickFor(100 * ms)
			b.has(test.budgets...)
		})
	}
}

func least(s governor.Server, us int64) governor.Server {
	s.LeastUs = us
	return s
}

func TestARefusedBudgetIsAFaultAndTriedAgain(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000))
	b.refuse = 1
	faults := b.load(1)
	if got := faults[0].Err.Error(); got != "setting a budget of 2000 us: "+errBusy.Error() {
		t.Error(got)
	}
	b.tickFor(ms)
	b.has(2000)
}

// Without a plan no server is raised anew; a raised one stays so until it recovers.
func TestNoPlan(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000), srv(1, "High", 2000, 4000)).begun()
	b.alarm(0, 0, governor.Raised)
	b.plan = table.Plan{Core: 1}
	b.servers[0].RaiseToUs, b.servers[1].RaiseToUs = 0, 0
	b.load(0)
	b.alarm(1, 0, governor.Denied)
	b.has(4000, 2000)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.has(2000, 2000)
}

// A plan with less room than is in use: victims give way, then raises are given back, the least critical first.
func TestAPlanThatShrinks(t *testing.T) {
	b := newBench(t, governor.Options{EDF: true}, 900_000, srv(0, "High", 1000, 3000), srv(1, "Middle", 1000, 3000), srv(2, "Low", 2000, 2000)).squeezes(2)
	b.plan.ThresholdPpm = 850_000 // does not hold the victims' mode: 0.3 + 0.3 + 0.2 do
	b.begun()
	b.alarm(0, 0, governor.Raised)
	b.alarm(1, 0, governor.Raised)
	b.plan.ThresholdPpm = 600_000
	b.load(0)
	b.has(3000, 1000, 1000)
	b.tickFor(100 * ms)
	b.has(3000, 1000, 2000)
}

func TestCapacityBoundsEveryPlan(t *testing.T) {
	b := newBench(t, governor.Options{Capacity: 500_000}, 900_000, srv(0, "High", 4000, 4000), srv(1, "Low", 2000, 2000))
	b.load(1)
	b.has(4000, 0)
	b.plan = table.Plan{Core: 1}
	b.load(1)
	b.has(4000, 0)
}

func TestGranularityIsCharged(t *testing.T) {
	b := newBench(t, governor.Options{GranularityUs: 1000}, 900_000, srv(0, "High", 4000, 4000), srv(1, "Low", 3000, 3000)).begun()
	if b.Promised() != 900_000 {
		t.Errorf("%d ppm", b.Promised())
	}
	b.servers[1] = srv(1, "Low", 3001, 3001)
	b.load(1)
}

// A plan that holds has paid for the raises of the servers that are not Limited: no other server gets their room.
func TestPaidRaisesAreKeptFree(t *testing.T) {
	b := newBench(t, governor.Options{}, 800_000, srv(0, "High", 2000, 5000), limited(srv(1, "High", 2000, 4000))).begun()
	if b.Promised() != 700_000 {
		t.Errorf("%d ppm are promised, want 0.5 + 0.2", b.Promised())
	}
	b.alarm(1, 0, governor.Partial)
	b.has(2000, 3000)
	b.alarm(0, 0, governor.Raised)
	b.has(5000, 3000)
}

// After a restart: what is in force is adopted and not written again, a raise goes on until it recovers, a cut is undone,
// and what an earlier agent promised stays free until its deadlines.
func TestRestart(t *testing.T) {
	servers := []governor.Server{
		srv(0, "High", 1000, 3000), srv(1, "Low", 2000, 2000), srv(2, "Middle", 1000, 1000), srv(3, "Low", 1000, 1000), reserved(srv(4, "High", 500, 1000)),
	}
	b := newBench(t, governor.Options{EDF: true, Started: start - ms}, 900_000, servers...).squeezes(1)
	for slot, us := range []int64{3000, 1000, 1000, 4000, 1000} {
		b.InForce(slot, us)
		b.budgets[slot] = us
	}
	b.load(0)
	b.wrote("3=1000")
	b.clean(0, governor.None) // the dwell begins anew
	if s := b.State(0); !s.Raised || s.LevelUs != 3000 {
		t.Errorf("the raise: %+v", s)
	}
	if s := b.State(4); s.Raised || s.LevelUs != 500 {
		t.Errorf("the reserve is no raise: %+v", s)
	}
	if !b.State(1).Squeezed || b.State(2).Squeezed {
		t.Error("who is squeezed?")
	}
	b.tickFor(100 * ms)
	b.has(3000, 2000, 1000, 1000, 1000)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.has(1000, 2000, 1000, 1000, 1000)
}

func TestNothingWasPromisedOnANewNode(t *testing.T) {
	b := newBench(t, governor.Options{Started: start - ms}, 900_000, srv(0, "High", 2000, 4000))
	b.InForce(0, 0)
	b.load(0)
	b.has(2000)
}

func TestAfterARestartFormerPromisesStayFree(t *testing.T) {
	b := newBench(t, governor.Options{Started: start - ms}, 900_000, limited(srv(0, "High", 2000, 4000)))
	b.Load(nil, b.plan, b.now, b.kernel) // no server is there yet
	b.InForce(0, 2000)
	b.budgets[0] = 2000
	b.load(0)
	if b.Promised() != 900_000 {
		t.Errorf("%d ppm", b.Promised())
	}
	b.alarm(0, 0, governor.Denied)
	b.pass(9 * ms)
	b.alarm(0, 1, governor.Denied)
	b.alarm(0, 0, governor.Raised)
}

// A new server for which the table has room gets it from the raised ones, if need be.
func TestANewServersLowBudgetComesBeforeRaises(t *testing.T) {
	b := newBench(t, governor.Options{}, 700_000, srv(0, "Middle", 2000, 6000)).begun()
	b.alarm(0, 0, governor.Raised)
	b.servers = append(b.servers, srv(1, "High", 3000, 5000))
	b.load(0)
	b.has(2000, 0)
	b.tickFor(11 * ms)
	b.has(2000, 3000)
}

func TestInForceIsForTheNextLoadOnly(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000))
	b.InForce(1, 3000)
	b.begun()
	b.servers = append(b.servers, srv(1, "Low", 3000, 3000))
	b.load(0)
	b.wrote("1=3000")
}

func TestStateOfTheCore(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000), srv(1, "Low", 1000, 1000)).begun()
	if b.Raised() != 0 || !b.State(0).Alarmable || b.State(1).Alarmable {
		t.Errorf("%d raised, %+v, %+v", b.Raised(), b.State(0), b.State(1))
	}
	b.alarm(0, 0, governor.Raised)
	if b.Raised() != 1 || governor.Raised.String() != "Raised" || governor.Kind(99).String() != "Kind(?)" {
		t.Errorf("%d raised", b.Raised())
	}
	if got := b.Alarm(0, b.now, b.now, b.kernel); got.OldUs != 4000 || got.NewUs != 4000 {
		t.Errorf("%+v", got)
	}
}
