package governor_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
)

// owes tells that a slot was charged that many microseconds in a period that is released now.
func (b *bench) owes(slot int, usedUs int64, want governor.Kind) {
	b.Helper()
	if got := b.Owes(slot, b.now, usedUs*1000, b.now, b.kernel); got.Kind != want {
		b.Errorf("at %d ms: debt of %d: %v, want %v", (b.now-start)/ms, slot, got, want)
	}
}

// twoOfTen is raised when two periods of ten overran.
func twoOfTen(s governor.Server) governor.Server {
	s.Overruns, s.Periods = 2, 10
	return s
}

// A window that is lost to a debt counts as one that overran, so that no server waits, stopped, for a second overrun.
func TestLostWindowsCountAsOverruns(t *testing.T) {
	for name, test := range map[string]struct {
		usedUs int64
		want   governor.Kind
		budget int64
	}{
		"no window is lost":   {3_999, governor.Counted, 2000},
		"one is lost":         {4_000, governor.Raised, 4000},
		"many are lost":       {25_000, governor.Raised, 4000},
		"more than can be so": {1 << 52, governor.Raised, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, governor.Options{}, 900_000, twoOfTen(srv(0, "Middle", 2000, 4000))).begun()
			b.owes(0, test.usedUs, test.want)
			b.has(test.budget)
			if s := b.State(0); s.Overruns != 1 {
				t.Errorf("%d overruns; want the one that there was", s.Overruns)
			}
		})
	}
}

// The raise goes up to the level that loses no window.
func TestADebtIsRaisedToTheLevelThatPays(t *testing.T) {
	for name, test := range map[string]struct{ usedUs, budget int64 }{
		"the next level does":   {4_100, 2500},
		"the one after it does": {5_500, 3000},
		"none does":             {25_000, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			s := srv(0, "High", 2000, 4000)
			s.LevelsUs = []int64{2500, 3000, 3500}
			b := newBench(t, governor.Options{}, 900_000, s).begun()
			b.owes(0, test.usedUs, governor.Raised)
			b.has(test.budget)
		})
	}
}

// A debt raises no server beyond what the plan has room for, and none whose criticality forbids it.
func TestADebtIsPaidWithinThePlan(t *testing.T) {
	t.Parallel()
	b := newBenchSerial(t, governor.Options{}, 500_000, limited(srv(0, "High", 2000, 4000)), srv(1, "Low", 2000, 2000)).begun()
	b.owes(0, 25_000, governor.Partial)
	b.owes(1, 25_000, governor.Counted)
	b.has(3000, 2000)
	if b.Owes(7, b.now, 25_000_000, b.now, b.kernel).Kind != governor.None {
		t.Error("a debt of nobody does something")
	}
}

// Who is stopped for what it owes neither runs nor is clean: it is not taken to be idle, and keeps its raise until it
// has paid, and as long as any raise after that.
func TestNoServerRecoversWhileItPays(t *testing.T) {
	t.Parallel()
	ran := start
	b := newBenchSerial(t, governor.Options{Seen: func(int) int64 { return ran }}, 900_000, srv(0, "High", 2000, 4000)).begun()
	b.owes(0, 800_000, governor.Raised) // 200 periods of 10 ms at 4000 us
	b.tickFor(1990 * ms)
	b.has(4000)
	b.clean(0, governor.None)
	b.tickFor(1005 * ms)
	b.has(4000)
	b.tickFor(10 * ms)
	b.has(2000)
}

// Who works off what a stall of the machine left has no fault, unless it goes on. What is owed because the kernel ends
// budgets at ticks is the server's own doing.
func TestAStallIsNoFault(t *testing.T) {
	for name, test := range map[string]struct {
		usedUs  int64
		excused bool
	}{"a stall": {40_000, true}, "a tick": {11_000, false}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 4000)).begun()
			b.owes(0, test.usedUs, governor.Raised)
			for range 6 {
				b.pass(10 * ms)
				b.end(0, governor.Counted)
			}
			if got := b.State(0).Fault; got == test.excused {
				t.Errorf("fault %t", got)
			}
			for range 20 {
				b.pass(10 * ms)
				b.end(0, governor.Counted)
			}
			if !b.State(0).Fault {
				t.Error("it goes on for ever without a fault")
			}
		})
	}
}
