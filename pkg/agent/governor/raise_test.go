package governor_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
)

func TestWhoIsRaised(t *testing.T) {
	t.Parallel()
	listed, unlisted := srv(0, "High", 2000, 4000), srv(0, "High", 2000, 4000)
	unlisted.RaiseToUs = 0
	partly := srv(0, "High", 2000, 4000)
	partly.RaiseToUs = 3000
	for name, test := range map[string]struct {
		server governor.Server
		kind   governor.Kind
		budget int64
	}{
		"High":                               {listed, governor.Raised, 4000},
		"Middle":                             {srv(0, "Middle", 2000, 4000), governor.Raised, 4000},
		"Low, by the plan":                   {srv(0, "Low", 2000, 4000), governor.Raised, 4000},
		"Low, not in the plan":               {unplanned(srv(0, "Low", 2000, 4000)), governor.Counted, 2000},
		"not in the plan":                    {unlisted, governor.Denied, 2000},
		"only as far as the plan says":       {partly, governor.Raised, 3000},
		"nothing to raise":                   {srv(0, "High", 2000, 2000), governor.Counted, 2000},
		"Limited, with the plan's one place": {limited(listed), governor.Raised, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, governor.Options{}, 900_000, test.server)
			b.plan.MaxRaised = 1
			b.begun().has(2000)
			b.pass(2 * ms)
			b.alarm(0, 2*ms, test.kind)
			b.has(test.budget)
			if test.kind == governor.Raised && test.budget == 4000 && !b.State(0).Highest {
				t.Error("it is not at its highest")
			}
		})
	}
}

func TestUnknownSlotsAndFormerHoldersChangeNothing(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(3, "High", 2000, 4000)).begun()
	for _, slot := range []int{-1, 0, 4, 5000} {
		b.alarm(slot, 0, governor.None)
		b.end(slot, governor.None)
		b.clean(slot, governor.None)
	}
	b.pass(ms)
	b.alarm(3, 11*ms, governor.None) // released and over before the server was here
	if s := b.State(3); s.Overruns != 0 || s.BudgetUs != 2000 || b.State(4) != (governor.State{}) {
		t.Errorf("%+v", s)
	}
	b.alarm(3, 10*ms, governor.Raised)
}

// Two of ten periods: an overrun counts once for its period, and eight quiet periods later no more.
func TestOverrunsAreCountedByPeriod(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		of     [2]int
		alarms []int64 // periods
		want   []governor.Kind
	}{
		"two in a row":            {[2]int{2, 10}, []int64{0, 1}, []governor.Kind{governor.Counted, governor.Raised}},
		"the same period twice":   {[2]int{2, 10}, []int64{0, 0}, []governor.Kind{governor.Counted, governor.Counted}},
		"nine apart":              {[2]int{2, 10}, []int64{0, 9}, []governor.Kind{governor.Counted, governor.Raised}},
		"ten apart":               {[2]int{2, 10}, []int64{0, 10}, []governor.Kind{governor.Counted, governor.Counted}},
		"a long time apart":       {[2]int{2, 64}, []int64{0, 100_000}, []governor.Kind{governor.Counted, governor.Counted}},
		"the last of 64":          {[2]int{2, 64}, []int64{0, 63}, []governor.Kind{governor.Counted, governor.Raised}},
		"an older one comes late": {[2]int{2, 10}, []int64{5, 3, 6}, []governor.Kind{governor.Counted, governor.Counted, governor.Raised}},
		"three of three":          {[2]int{3, 3}, []int64{0, 1, 2}, []governor.Kind{governor.Counted, governor.Counted, governor.Raised}},
		"three of three, a gap":   {[2]int{3, 3}, []int64{0, 1, 3}, []governor.Kind{governor.Counted, governor.Counted, governor.Counted}},
	} {
		t.Run(name, func(t *testing.T) {
			s := srv(0, "Middle", 2000, 4000)
			s.Overruns, s.Periods = test.of[0], test.of[1]
			b := newBench(t, governor.Options{}, 900_000, s).begun()
			for i, period := range test.alarms {
				release := start + period*10*ms
				b.now = max(b.now, release+2*ms)
				b.alarm(0, b.now-release, test.want[i])
			}
		})
	}
}

// A window begins late when its thread does: 14 ms after the last release is still the next period.
func TestPeriodsAreCountedByTheirNumberNotTheirTime(t *testing.T) {
	s := srv(0, "Middle", 2000, 4000)
	s.Overruns, s.Periods = 2, 2
	b := newBench(t, governor.Options{}, 900_000, s).begun()
	b.alarm(0, 0, governor.Counted)
	b.pass(14 * ms)
	b.alarm(0, 0, governor.Raised)
}

func TestLevelsAreClimbedOneByOne(t *testing.T) {
	s := srv(0, "High", 2000, 5000)
	s.LevelsUs = []int64{3000, 4000}
	b := newBench(t, governor.Options{}, 900_000, s).begun()
	b.pass(2 * ms)
	for i, budget := range []int64{3000, 4000, 5000} {
		rearm := b.State(0).Rearm
		b.alarm(0, 2*ms, governor.Raised)
		b.has(budget)
		if again := b.State(0).Rearm != rearm; again != (i < 2) {
			t.Errorf("at %d us: told again in the window: %v", budget, again)
		}
	}
	b.alarm(0, 2*ms, governor.Counted)
	if got := b.State(0).Raises; got != 3 {
		t.Errorf("%d raises", got)
	}
}

func TestAFaultIsLatchedAfterThreeEndsInARow(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000), srv(1, "Low", 100, 100), srv(2, "Middle", 100, 100)).begun()
	b.alarm(0, 0, governor.Raised)
	period := func(slot int) bool {
		b.pass(10 * ms)
		b.alarm(slot, 0, governor.Counted)
		b.end(slot, governor.Counted)
		b.end(slot, governor.Counted) // told twice, counted once
		return b.State(slot).Fault
	}
	for _, want := range []bool{false, false} {
		if got := period(0); got != want {
			t.Fatal("too soon")
		}
	}
	b.pass(10 * ms) // a quiet period between: not in a row
	for _, want := range []bool{false, false, true} {
		if got := period(0); got != want {
			t.Fatalf("fault %v, want %v", got, want)
		}
	}
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	if s := b.State(0); s.Fault || s.BudgetUs != 2000 {
		t.Errorf("after recovery: %+v", s)
	}
	for range 5 {
		period(1)
	}
	for range 5 {
		period(2)
	}
	if b.State(1).Fault || !b.State(2).Fault || !b.State(2).Raised {
		t.Errorf("Low %+v, Middle %+v: only Middle has a fault, and wants to be told of clean windows", b.State(1), b.State(2))
	}
	b.load(0)
	if !b.State(2).Fault {
		t.Error("the same table cleared the fault")
	}
	b.servers[2] = srv(2, "Middle", 110, 110)
	b.load(0)
	if b.State(2).Fault {
		t.Error("another table did not clear the fault")
	}
}

func TestFaultAfterIsAnOption(t *testing.T) {
	b := newBench(t, governor.Options{FaultAfter: 1}, 900_000, srv(0, "High", 2000, 2000)).begun()
	b.alarm(0, 0, governor.Counted)
	if b.State(0).Fault {
		t.Error("an alarm is no end")
	}
	b.end(0, governor.Counted)
	if !b.State(0).Fault {
		t.Error("no fault")
	}
}

// Two servers and room for one raise: the other gets what is left, at once, and the rest when there is room.
func TestPartialRaise(t *testing.T) {
	first, second := srv(0, "High", 2000, 4000), srv(1, "High", 3000, 5000)
	second.DwellUs = 10_000_000
	b := newBench(t, governor.Options{}, 800_000, first, second).begun() // 0.5 low, 0.9 high
	b.alarm(0, 0, governor.Raised)
	b.alarm(1, 0, governor.Partial)
	b.has(4000, 4000)
	if s := b.State(1); s.Partial != 1 || s.Highest || !s.Raised {
		t.Errorf("%+v", s)
	}
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.has(2000, 4000)
	b.tickFor(9 * ms)
	b.has(2000, 4000)
	b.tickFor(11 * ms) // the deadline of the period in which it was given back, and a release after it
	b.has(2000, 5000)
}

// A raise that gains less than the kernel can tell is none.
func TestARaiseByLessThanTheGranularityIsDenied(t *testing.T) {
	b := newBench(t, governor.Options{GranularityUs: 500}, 640_000, srv(0, "High", 2000, 4000), srv(1, "High", 3000, 5000)).begun()
	b.alarm(0, 0, governor.Denied)
	b.has(2000, 3000)
	b.plan.ThresholdPpm = 650_000
	b.load(0)
	b.alarm(0, 0, governor.Partial)
	b.has(2500, 3000)
}

// The room of a raise that ended is for periods released at or after its deadline. That it is free now is
// not enough.
func TestFreedRoomIsForLaterReleases(t *testing.T) {
	b := newBench(t, governor.Options{}, 700_000, limited(srv(0, "High", 2000, 4000)), limited(srv(1, "High", 3000, 5000))).begun()
	b.alarm(0, 0, governor.Raised)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered) // promised until 10 ms from now
	b.pass(9 * ms)
	b.alarm(1, 0, governor.Denied)
	b.pass(2 * ms)
	b.alarm(1, 2*ms, governor.Denied) // over, but this period was released before
	b.alarm(1, ms, governor.Raised)
	b.has(2000, 5000)
}

func TestARaiseGivenBackIsItsOwnUntilTheDeadline(t *testing.T) {
	b := newBench(t, governor.Options{}, 700_000, limited(srv(0, "High", 2000, 4000)), limited(srv(1, "High", 3000, 5000)))
	b.plan.MaxRaised = 1
	b.begun()
	b.alarm(0, 0, governor.Raised)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.pass(ms)
	b.alarm(0, ms, governor.Raised)
	b.has(4000, 3000)
	if b.Promised() != 700_000 {
		t.Errorf("%d ppm promised", b.Promised())
	}
}

// One Limited server of a core at a time, whatever room there is.
func TestWindows(t *testing.T) {
	a, b1, c := limited(srv(0, "High", 1000, 2000)), limited(srv(1, "High", 1000, 2000)), srv(2, "High", 1000, 2000)
	b := newBench(t, governor.Options{}, 900_000, a, b1, c)
	b.plan.MaxRaised = 1
	b.begun()
	b.alarm(0, 0, governor.Raised)
	b.alarm(1, 0, governor.Denied)
	b.alarm(2, 0, governor.Raised) // it is not Limited
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.pass(11 * ms)
	b.alarm(1, 2*ms, governor.Denied) // released before the window ended
	b.alarm(1, ms, governor.Raised)
	b.has(1000, 2000, 2000)
}

func TestARefusedRaiseIsTriedAgain(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000)).begun()
	b.refuse = 5
	for i := range 4 {
		rearm := b.State(0).Rearm
		b.alarm(0, 0, governor.Refused)
		if again := b.State(0).Rearm != rearm; again != (i < 3) {
			t.Errorf("refusal %d: told again in the window: %v", i+1, again)
		}
	}
	b.has(2000)
	b.tickFor(7 * ms)
	b.has(2000)
	b.tickFor(30 * ms) // 8 ms, then 16 ms after the last refusal
	b.has(4000)
	if s := b.State(0); s.Refused != 5 || s.Raises != 1 {
		t.Errorf("%+v", s)
	}
}

// Reserved: the high budget is in force from the start, an alarm at low only marks the level.
func TestReserved(t *testing.T) {
	s := reserved(srv(0, "High", 2000, 5000))
	s.LevelsUs = []int64{3000}
	b := newBench(t, governor.Options{}, 900_000, s, reserved(srv(1, "Low", 1000, 1000))).begun()
	b.wrote("0=5000", "1=1000")
	level := func(want int64, raised bool) {
		t.Helper()
		if s := b.State(0); s.LevelUs != want || s.AlarmUs != want || s.Raised != raised || s.BudgetUs != 5000 {
			t.Errorf("%+v, want level %d", s, want)
		}
	}
	level(2000, false)
	b.alarm(0, 0, governor.Raised)
	level(3000, true)
	b.alarm(0, 0, governor.Raised)
	level(5000, true)
	for range 3 {
		b.pass(10 * ms)
		b.end(0, governor.Counted)
	}
	if !b.State(0).Fault {
		t.Error("no fault")
	}
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	level(2000, false)
	b.wrote()
}

// A Limited server's raise is not paid for, so nothing of it is in force from the start.
func TestReservedNeedsAPaidRaise(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, reserved(limited(srv(0, "High", 2000, 5000)))).begun()
	b.has(2000)
	b.alarm(0, 0, governor.Raised)
	b.has(5000)
}

// Under EDF a server that slept in its period has the rest of its budget by the wake-up rule: the raise shrinks with
// what was left of the period when it woke up.
func TestRaisesAreScaledUnderEDF(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edf          bool
		woke         func(int) int64
		budget, next int64
	}{
		"fixed priorities":     {false, nil, 5000, 5000},
		"never slept":          {true, func(int) int64 { return start }, 5000, 5000},
		"woke up at 6 of 10":   {true, func(int) int64 { return start + 6*ms }, 3200, 5000},
		"nobody knows: now, 8": {true, nil, 2600, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, governor.Options{EDF: test.edf, Woke: test.woke}, 900_000, srv(0, "High", 2000, 5000)).begun()
			b.pass(8 * ms)
			want := governor.Raised
			if test.budget < 5000 {
				want = governor.Partial
			}
			b.alarm(0, 8*ms, want)
			b.has(test.budget)
			b.Tick(b.now, b.kernel) // not twice in one period
			b.has(test.budget)
			b.pass(2 * ms)
			b.Tick(b.now, b.kernel)
			b.has(test.next)
		})
	}
}
