package governor_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
)

// adopts loads a core whose kernel has a budget for slot 0 already.
func adopts(b *bench, us int64) *bench {
	b.Helper()
	b.InForce(0, us)
	b.budgets[0] = us
	return b.begun()
}

func TestWhatIsAdopted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		server  governor.Server
		inForce int64
		want    adopted
	}{
		"the low budget":                         {srv(0, "High", 2000, 4000), 2000, adopted{2000, false, false}},
		"a raise":                                {srv(0, "High", 2000, 4000), 3500, adopted{3500, true, false}},
		"more than the highest is cut":           {srv(0, "High", 2000, 4000), 5000, adopted{4000, true, false}},
		"more than a Low server may have":        {unplanned(srv(0, "Low", 2000, 4000)), 3000, adopted{2000, false, false}},
		"less than low, where nobody is cut":     {srv(0, "Middle", 2000, 4000), 500, adopted{2000, false, false}},
		"less than low, of a victim":             {srv(0, "Low", 3000, 3000), 1500, adopted{1500, false, true}},
		"less than its floor":                    {srv(0, "Low", 3000, 3000), 1000, adopted{3000, false, false}},
		"nothing":                                {srv(0, "High", 2000, 4000), 0, adopted{2000, false, false}},
		"the least that the table asks for":      {least(srv(0, "High", 2000, 4000), 4000), 4000, adopted{4000, false, false}},
		"a reserve":                              {reserved(srv(0, "High", 2000, 4000)), 4000, adopted{4000, false, false}},
		"a reserve that was not yet in force":    {reserved(srv(0, "High", 2000, 4000)), 2000, adopted{4000, false, false}},
		"a reserve that was partly in force":     {reserved(srv(0, "High", 2000, 4000)), 3000, adopted{4000, true, false}},
		"a Limited server's raise is no reserve": {reserved(limited(srv(0, "High", 2000, 4000))), 4000, adopted{4000, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, governor.Options{}, 900_000, test.server)
			if test.server.LowUs == 3000 {
				b.squeezes(0)
			}
			adopts(b, test.inForce)
			s := b.State(0)
			if got := (adopted{s.BudgetUs, s.Raised, s.Squeezed}); got != test.want || b.budgets[0] != test.want.budget {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// adopted is what is compared of governor.State.
type adopted struct {
	budget           int64
	raised, squeezed bool
}

// A raise that is paid for later counts from then on, though nothing is written.
func TestARaiseIsPaidForWhenThereIsRoom(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 5000), srv(1, "Low", 6000, 6000)).begun()
	b.servers = b.servers[:1]
	b.load(0)
	if b.Promised() != 800_000 {
		t.Errorf("%d ppm are promised until the deadline", b.Promised())
	}
	b.tickFor(21 * ms)
	if b.Promised() != 500_000 {
		t.Errorf("%d ppm are promised", b.Promised())
	}
	b.wrote()
}

// Full to the last ppm is not too full.
func TestAPlanThatHoldsExactly(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 5000), srv(1, "Low", 4000, 4000)).squeezes(1)
	b.plan.MaxRaised = 1
	b.begun()
	if b.Promised() != 900_000 {
		t.Errorf("%d ppm are promised, the raise is not paid for", b.Promised())
	}
	b.load(0)
	if b.Promised() != 900_000 {
		t.Errorf("%d ppm are promised, loaded again", b.Promised())
	}
}

// Victims of a plan with windows are there for the raises of Limited servers: it has no two modes. One without is by a test that knows of no Limited
// servers, and means what it means for any others.
func TestLimitedServersNeedNoModeSwitch(t *testing.T) {
	for windows, floor := range map[int]int64{1: 2000, 0: 1000} {
		b := newBenchSerial(t, governor.Options{}, 900_000, limited(srv(0, "High", 2000, 3000)), limited(srv(1, "High", 2000, 3000)), srv(2, "Low", 2000, 2000)).squeezes(2)
		b.plan.MaxRaised = windows
		b.begun()
		b.alarm(0, 0, governor.Raised)
		b.has(3000, 2000, floor)
	}
}

// The only one who is raised gives back what a smaller plan does not allow.
func TestTheOnlyRaiseIsGivenBack(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000)).begun()
	b.alarm(0, 0, governor.Raised)
	b.plan.ThresholdPpm = 300_000
	b.load(0)
	b.has(2000)
}

// A new server for which the least that the table asks for has no room yet runs with its low budget meanwhile.
func TestTheLowBudgetComesFirst(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "Low", 6000, 6000)).begun()
	b.servers = []governor.Server{least(srv(1, "High", 2000, 5000), 5000)}
	b.load(0)
	if b.budgets[1] != 2000 {
		t.Errorf("%d us", b.budgets[1])
	}
	b.tickFor(21 * ms)
	if b.budgets[1] != 5000 {
		t.Errorf("%d us", b.budgets[1])
	}
}

func TestLowExactlyFits(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "Low", 7000, 7000)).begun()
	b.servers = append(b.servers, least(srv(1, "High", 2000, 5000), 5000))
	b.load(1)
	b.has(7000, 2000)
}

// A server that gave way to a raise keeps its place over a restart, too: one for which the core had no room has none
// now.
func TestWhoGaveWayKeepsItsPlaceOverARestart(t *testing.T) {
	servers := []governor.Server{srv(0, "High", 4000, 5000), srv(1, "Low", 4000, 4000), least(srv(2, "High", 1000, 2000), 2000)}
	b := newBench(t, governor.Options{}, 900_000, servers...).squeezes(1)
	for slot, us := range []int64{5000, 2000, 1000} {
		b.InForce(slot, us)
		b.budgets[slot] = us
	}
	if faults := b.load(1); faults[0].Slot != 2 {
		t.Errorf("%v; want that of slot 2", faults)
	}
	b.has(5000, 2000, 1000)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.tickFor(40 * ms)
	b.has(4000, 4000, 1000)
}

// A server that was to leave is back with less: its room stayed its own, its raise is over, and it is not raised without another alarm.
func TestWhoIsBackHasWhatItHasByNow(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 6000), srv(1, "High", 2000, 4000)).begun()
	b.alarm(0, 0, governor.Raised)
	b.InForce(0, 2000)
	b.budgets[0] = 2000
	b.load(0)
	b.has(2000, 2000)
	if s := b.State(0); s.Raised || s.LevelUs != 2000 || s.Overruns != 0 || b.Promised() > 900_000 {
		t.Errorf("%+v, %d ppm promised; want no raise, and no overruns", s, b.Promised())
	}
	b.tickFor(20 * ms)
	b.has(2000, 2000)
	b.alarm(0, 0, governor.Raised)
}
