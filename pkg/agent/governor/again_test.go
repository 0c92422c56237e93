package governor_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
)

// At a new level overruns are counted anew.
func TestEachLevelNeedsItsOwnOverruns(t *testing.T) {
	s := srv(0, "Middle", 2000, 4000)
	s.LevelsUs, s.Overruns, s.Periods = []int64{3000}, 2, 10
	b := newBench(t, governor.Options{}, 900_000, s).begun()
	b.alarm(0, 0, governor.Counted)
	b.pass(10 * ms)
	b.alarm(0, 0, governor.Raised)
	b.alarm(0, 0, governor.Counted)
	b.has(3000)
	b.pass(10 * ms)
	b.alarm(0, 0, governor.Raised)
	b.has(4000)
}

// After a write that succeeded the next refusal is a first one.
func TestRefusalsAreForgottenAfterASuccess(t *testing.T) {
	s := srv(0, "High", 2000, 5000)
	s.LevelsUs = []int64{3000, 4000}
	b := newBench(t, governor.Options{}, 900_000, s).begun()
	for range 3 {
		b.refuse = 3
		for range 3 {
			rearm := b.State(0).Rearm
			b.alarm(0, 0, governor.Refused)
			if b.State(0).Rearm == rearm {
				t.Error("it is not tried again in the window")
			}
		}
		b.alarm(0, 0, governor.Raised)
	}
	b.has(5000)
}
