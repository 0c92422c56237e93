package fastpath_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
)

// A server that its kernel stops for whole windows, because it was charged with more than two budgets, is raised
// at once, whatever told of it. That is the latest of reactions.
func TestADebtIsAnswered(t *testing.T) {
	for name, kind := range map[string]uint32{"by an alarm": ebpf.KindAlarm, "by the throttle": ebpf.KindThrottled} {
		t.Run(name, func(t *testing.T) {
			k := newKernel("/a")
			k.source = ebpf.SourceRTGroup
			n := start(t, k, t.TempDir())
			middle := high("a", "/a", 0)
			middle.Criticality, middle.Overruns, middle.Periods, middle.LevelsUs = "Middle", 2, 10, []int64{3_000}
			n.apply(tableOf(1, middle))
			n.now.Add(12_000_000)
			e := n.programs.event(100, kind, n.now.Load())
			e.UsedNs = 3_999_999
			n.send(0, e)
			if got := k.groups["/a"].budgetUs; got != 2_000 {
				t.Errorf("budget %d us after less than two budgets; want 2000, as two overruns of ten are needed", got)
			}
			e.UsedNs = 25_000_000
			n.send(0, e)
			report := n.Report()
			if got := k.groups["/a"].budgetUs; got != 4_000 {
				t.Errorf("budget %d us; want 4000 at once: %+v", got, n.reported("a"))
			}
			if len(n.Samples()) != 1 {
				t.Errorf("reactions %+v, samples %v; want one", report.React, n.Samples())
			}
		})
	}
}

// Where every window has its budget whatever was used in the one before, there is no debt.
func TestOurOwnBudgetsCarryNothing(t *testing.T) {
	k := newKernel("/a")
	n := start(t, k, t.TempDir())
	middle := high("a", "/a", 0)
	middle.Criticality, middle.Overruns, middle.Periods = "Middle", 2, 10
	n.apply(tableOf(1, middle))
	n.now.Add(12_000_000)
	e := n.programs.event(100, ebpf.KindAlarm, n.now.Load())
	e.UsedNs = 25_000_000
	n.send(0, e)
	if got := k.groups["/a"].budgetUs; got != 2_000 {
		t.Errorf("budget %d us; want 2000", got)
	}
}

// Threads that share a deadline budget are told what it is as a whole: the most that the server may have.
func TestTheProgramsKnowTheWholeBudget(t *testing.T) {
	k := newKernel("/a", "/b")
	n := start(t, k, t.TempDir())
	low := high("b", "/b", 1)
	low.Criticality = "Low"
	n.apply(tableOf(1, high("a", "/a", 0), low))
	for id, want := range map[uint64]uint64{100: 4_000_000, 101: 2_000_000} {
		if got := n.programs.Config(n.programs.slots[id]).WholeNs; got != want {
			t.Errorf("group %d: %d ns; want %d", id, got, want)
		}
	}
}

// When the kernel stops a server before its alarm was told, an event that tells of both tells of one overrun: one level.
func TestOneOverrunIsOneLevel(t *testing.T) {
	k := newKernel("/a")
	k.source = ebpf.SourceRTGroup
	n := start(t, k, t.TempDir())
	s := high("a", "/a", 0)
	s.LevelsUs = []int64{3_000}
	n.apply(tableOf(1, s))
	n.now.Add(12_000_000)
	throttled := n.programs.event(100, ebpf.KindThrottled, n.now.Load())
	throttled.UsedNs = 2_100_000
	n.send(0, throttled)
	alarm := throttled
	alarm.Kind = ebpf.KindAlarm
	n.send(0, alarm)
	if got := k.groups["/a"].budgetUs; got != 3_000 {
		t.Errorf("budget %d us after one use of 2.1 ms was told of twice; want 3000", got)
	}
	alarm.UsedNs = 2_900_000
	n.send(0, alarm)
	if got := k.groups["/a"].budgetUs; got != 4_000 {
		t.Errorf("budget %d us after 2.9 ms; want 4000", got)
	}
}
