package actuator

import (
	"fmt"
	"testing"
	"time"
)

// TestALevelBeginsBesideWhatIsLeftOver: what a level used before it was put back is charged to the next budget that it gets.
func TestALevelBeginsBesideWhatIsLeftOver(t *testing.T) {
	s, c, b := rtSim(t)
	level := "/kubepods"
	has := func(want string) {
		t.Helper()
		if got := s.get("cpu", level, rtRuntime); got != want {
			t.Errorf("at %d ns %s has %s us; want %s", s.clock, level, got, want)
		}
	}
	sweep := func(after time.Duration) {
		t.Helper()
		s.clock += after.Nanoseconds()
		if _, err := b.Sweep(); err != nil {
			t.Fatal(err)
		}
	}
	g := mustOpen(t, b, serverOf(c.first))
	has("12012000")
	for range 2 { // the second time it is put back while it makes up for the first
		if err := g.Close(true); err != nil {
			t.Fatal(err)
		}
		sweep(0)
		has("0")
		sweep(time.Hour) // nothing is taken from it meanwhile
		g = mustOpen(t, b, serverOf(c.first))
	}
	has("36052000") // 12012000, and 24032000 and an overshoot of before
	sweep(settleAfter - 1)
	has("36052000")
	sweep(1)
	has("12012000")
	if err := b.Restore(); err != nil {
		t.Fatal(err)
	}
	has("0")
}

// TestNoMoreIsLeftOverThanThereIsRoomFor: who comes is opened, whatever there was before.
func TestNoMoreIsLeftOverThanThereIsRoomFor(t *testing.T) {
	s, c, b := rtSim(t)
	large := serverOf(c.first)
	large.BudgetUs, large.HighUs = large.PeriodUs*8/10, large.PeriodUs*8/10
	for range 3 {
		if err := mustOpen(t, b, large).Close(true); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, b, large)
	if got := s.get("cpu", c.first, rtRuntime); got != fmt.Sprint(large.BudgetUs) {
		t.Errorf("it has %s us, want %d", got, large.BudgetUs)
	}
}
