package governor_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
)

// crowded is a core where the first can be raised only when the others, who are Low, give way: 0.2 + 3 x 0.2 low,
// 0.4 high, 0.8 in all.
func crowded(t *testing.T) *bench {
	b := newBench(t, governor.Options{}, 800_000, limited(srv(0, "High", 2000, 4000)), srv(1, "Low", 2000, 2000), srv(2, "Low", 2000, 2000), srv(3, "Low", 2000, 2000))
	return b.squeezes(3, 2, 1)
}

// Victims are cut in the plan's order, no further than needed and not below their floors; their room is there for
// periods released after their deadlines.
func TestSqueezedRoomIsReusedAfterTheVictimsDeadline(t *testing.T) {
	b := crowded(t).begun()
	b.wrote("0=2000", "1=2000", "2=2000", "3=2000")
	b.pass(3 * ms)
	b.alarm(0, 3*ms, governor.Denied)
	b.wrote("3=1000", "2=1000")
	if s := b.State(3); !s.Squeezed || s.Squeezes != 1 || b.State(1).Squeezed {
		t.Errorf("%+v", s)
	}
	b.alarm(0, 3*ms, governor.Denied) // enough gives way already
	b.End(0, b.now-3*ms, b.now, b.kernel)
	b.wrote()
	if s := b.State(0); s.Denied != 1 {
		t.Errorf("denied %d times in one period", s.Denied)
	}
	if b.Promised() != 800_000 {
		t.Errorf("%d ppm are promised before the deadline", b.Promised())
	}
	b.pass(10 * ms)
	b.alarm(0, ms, governor.Denied) // released before
	b.alarm(0, 0, governor.Raised)
	b.has(4000, 2000, 1000, 1000)
}

func TestVictimsGiveNoMoreThanIsMissing(t *testing.T) {
	b := crowded(t)
	b.servers[0] = limited(srv(0, "High", 2000, 2300))
	b.begun()
	b.alarm(0, 0, governor.Denied)
	b.has(2000, 2000, 2000, 1700)
}

// What waits for room gets it by itself when the room is there, with no further alarm.
func TestTheRaiseComesWhenTheRoomIsThere(t *testing.T) {
	b := crowded(t).begun()
	b.alarm(0, 0, governor.Denied)
	b.tickFor(19 * ms)
	b.has(2000, 2000, 1000, 1000)
	b.tickFor(ms) // the first instant when every period under way was released after the victims' deadlines
	b.has(4000, 2000, 1000, 1000)
}

func TestARaiseThatIsNoLongerNeededIsForgotten(t *testing.T) {
	b := crowded(t)
	b.servers[0].DwellUs = 5000
	b.begun()
	b.alarm(0, 0, governor.Denied)
	b.tickFor(100 * ms)
	b.has(2000, 2000, 2000, 2000)
}

func TestOnlyTheLessCriticalGiveWay(t *testing.T) {
	b := newBench(t, governor.Options{}, 700_000, limited(srv(0, "Middle", 2000, 4000)), srv(1, "Middle", 2000, 2000), srv(2, "High", 2000, 2000)).squeezes(1, 2).begun()
	b.alarm(0, 0, governor.Partial)
	b.has(3000, 2000, 2000)
}

// Who was squeezed last is restored first, one per interval, when the raise has been given back.
func TestSqueezedServersAreRestoredOneAtATime(t *testing.T) {
	b := crowded(t).begun()
	b.alarm(0, 0, governor.Denied)
	b.tickFor(20 * ms)
	b.has(4000, 2000, 1000, 1000)
	b.pass(980 * ms)
	b.tickFor(0)
	b.has(4000, 2000, 1000, 1000)
	b.pass(20 * ms)
	b.clean(0, governor.Recovered)
	b.has(2000, 2000, 1000, 1000)
	b.tickFor(9 * ms) // it was promised to the raised server until its deadline
	b.has(2000, 2000, 1000, 1000)
	b.tickFor(12 * ms)
	b.has(2000, 2000, 2000, 1000)
	b.tickFor(10 * ms)
	b.has(2000, 2000, 2000, 2000)
	if b.State(3).Squeezed || b.State(2).Squeezed || b.Tick(b.now, b.kernel) != 0 {
		t.Error("something is left to do")
	}
}

// Restoring begins early: with part of the room, while the raise goes on.
func TestPartOfTheRoomIsGivenBackEarly(t *testing.T) {
	b := crowded(t).begun()
	b.alarm(0, 0, governor.Denied)
	b.tickFor(20 * ms)
	b.has(4000, 2000, 1000, 1000)
	b.plan.ThresholdPpm = 850_000
	b.load(0)
	b.tickFor(20 * ms)
	b.has(4000, 2000, 1500, 1000)
}

func TestRestoreEveryIsAnOption(t *testing.T) {
	b := newBench(t, governor.Options{RestoreEvery: 500 * ms}, 800_000, crowdedServers()...).squeezes(3, 2, 1).begun()
	b.alarm(0, 0, governor.Denied)
	b.tickFor(20 * ms)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.tickFor(30 * ms)
	b.has(2000, 2000, 2000, 1000)
	b.tickFor(489 * ms)
	b.has(2000, 2000, 2000, 1000)
	b.tickFor(ms)
	b.has(2000, 2000, 2000, 2000)
}

func crowdedServers() []governor.Server {
	return []governor.Server{limited(srv(0, "High", 2000, 4000)), srv(1, "Low", 2000, 2000), srv(2, "Low", 2000, 2000), srv(3, "Low", 2000, 2000)}
}

func TestNoServerIsRestoredWhileAnotherWaits(t *testing.T) {
	b := crowded(t)
	b.servers[0] = limited(srv(0, "High", 2000, 9000)) // more than can be made room for
	b.begun()
	b.alarm(0, 0, governor.Denied)
	b.tickFor(20 * ms)
	b.has(5000, 1000, 1000, 1000)
	for range 10 {
		b.alarm(0, 0, governor.Denied)
		b.tickFor(10 * ms)
	}
	b.has(5000, 1000, 1000, 1000)
}

// An idle victim has no period under way: what it gives is free for every period released from now on.
func TestAnIdleVictimsRoomIsFreeAtOnce(t *testing.T) {
	b := newBench(t, governor.Options{Seen: func(slot int) int64 { return start + int64(slot) }}, 800_000, crowdedServers()...).squeezes(3, 2, 1).begun()
	b.pass(11 * ms)
	b.alarm(0, 0, governor.Denied)
	b.pass(ms)
	b.alarm(0, ms, governor.Raised)
	b.has(4000, 2000, 1000, 1000)
}

func TestAVictimThatCannotBeCutIsPassedOver(t *testing.T) {
	b := crowded(t).begun()
	b.wrote("0=2000", "1=2000", "2=2000", "3=2000")
	b.refuse = 1
	b.alarm(0, 0, governor.Denied)
	b.wrote("2=1000", "1=1000")
}

func TestABudgetThatTheTableAsksForIsNotCut(t *testing.T) {
	b := crowded(t)
	b.servers[3] = srv(3, "Low", 1000, 2000)
	b.servers[3].LeastUs = 2000
	b.begun()
	b.alarm(0, 0, governor.Denied)
	b.has(2000, 1000, 1000, 2000)
}

func TestVictimsWhoArePlannedNoLongerAreRestored(t *testing.T) {
	b := crowded(t).begun()
	b.alarm(0, 0, governor.Denied)
	b.plan.Squeeze, b.plan.ThresholdPpm = nil, 900_000
	b.load(0)
	b.tickFor(2000 * ms)
	b.has(4000, 2000, 2000, 1000)
	b.clean(0, governor.Recovered)
	b.tickFor(50 * ms)
	b.has(2000, 2000, 2000, 2000)
}

// So they are when there is room for a part of it only.
func TestVictimsWhoArePlannedNoLongerAreRestoredInPart(t *testing.T) {
	b := crowded(t).begun()
	b.alarm(0, 0, governor.Denied)
	b.tickFor(20 * ms)
	b.plan.Squeeze, b.plan.ThresholdPpm = nil, 850_000
	b.load(0)
	b.tickFor(50 * ms)
	b.has(4000, 2000, 1500, 1000)
}

// Under fixed priorities a plan that names victims, and not for Limited servers, is one of two modes (AMC-rtb): with the
// first raise all of them give way, and none comes back while a server is raised.
func TestModeSwitch(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 3000), srv(1, "Low", 2000, 2000), srv(2, "Low", 1000, 1000)).squeezes(2, 1).begun()
	b.alarm(0, 0, governor.Raised)
	b.has(3000, 1000, 500)
	b.tickFor(500 * ms)
	b.has(3000, 1000, 500)
	b.pass(500 * ms)
	b.clean(0, governor.Recovered)
	b.tickFor(30 * ms)
	b.has(2000, 2000, 1000)

	edf := newBenchSerial(t, governor.Options{EDF: true, Woke: func(int) int64 { return start }}, 900_000, srv(0, "High", 2000, 3000), srv(1, "Low", 2000, 2000)).squeezes(1).begun()
	edf.alarm(0, 0, governor.Raised)
	edf.has(3000, 2000)
}

// A server that gives way for a raise keeps its place: a table that asks for more than fits without squeezing is told
// so, and one for which the core had no room before has none now.
func TestWhoGivesWayKeepsItsPlace(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 3000), srv(1, "High", 2000, 4000), srv(2, "Low", 4000, 4000), srv(3, "Low", 2000, 2000)).squeezes(2)
	b.load(1) // the last does not fit
	b.tickFor(20 * ms)
	b.alarm(0, 0, governor.Raised)
	b.tickFor(20 * ms)
	b.has(3000, 2000, 2000, 0)
	b.servers[1].LeastUs = 3500
	b.load(2)
	b.tickFor(40 * ms)
	b.has(3000, 2000, 2000, 0)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.tickFor(40 * ms)
	b.has(2000, 2000, 4000, 0)
}

// A raise is no right to what it took: a table that asks for it for good, where who gave way keeps its place, is refused that, and the raise
// goes on as one.
func TestARaisedServerTakesNoOthersPlace(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 3500), srv(1, "High", 2000, 2000), srv(2, "Low", 4000, 4000)).squeezes(2).begun()
	b.tickFor(20 * ms)
	b.alarm(0, 0, governor.Partial)
	b.tickFor(40 * ms)
	b.has(3500, 2000, 2000)
	b.servers[0].LeastUs = 3500
	b.load(1)
	b.tickFor(40 * ms)
	b.has(3500, 2000, 2000)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.tickFor(40 * ms)
	b.has(2000, 2000, 4000)
}

// Who gives way and asks for more than there is meanwhile keeps the place that it had.
func TestWhoGivesWayAndAsksForTooMuchKeepsItsPlace(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 3500), srv(1, "High", 2000, 2000), srv(2, "Low", 4000, 4000)).squeezes(2).begun()
	b.tickFor(20 * ms)
	b.alarm(0, 0, governor.Partial)
	b.tickFor(40 * ms)
	b.has(3500, 2000, 2000)
	b.servers[2] = srv(2, "Low", 6000, 6000)
	b.load(1)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	b.tickFor(40 * ms)
	b.has(2000, 2000, 4000)
}

// A raised server that asks for more than there is keeps its raise before a less critical one comes.
func TestWhoIsRaisedIsNotCutForWhoComes(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "Middle", 2000, 3000), srv(1, "High", 5000, 5000)).begun()
	b.tickFor(20 * ms)
	b.alarm(0, 0, governor.Raised)
	b.tickFor(20 * ms)
	b.has(3000, 5000)
	b.servers = []governor.Server{srv(0, "Middle", 5000, 6000), srv(1, "High", 5000, 5000), srv(2, "Low", 2000, 2000)}
	b.load(2)
	b.tickFor(40 * ms)
	b.has(3000, 5000, 0)
}

// A server that is no less critical gives way to none, whatever a plan says.
func TestEqualsDoNotGiveWay(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "Middle", 2000, 3000), srv(1, "Middle", 2000, 2000), srv(2, "Low", 2000, 2000)).squeezes(0, 1, 2).begun()
	b.alarm(0, 0, governor.Raised)
	b.tickFor(20 * ms)
	b.has(3000, 2000, 1000)
}
