package governor_test

import (
	"fmt"
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// twoModes is a core whose servers pass AMC-rtb in two modes only: High raised beside Low at its low budget does not.
func twoModes(t *testing.T) *bench {
	t.Helper()
	p := rt.PlanCore(rt.Core{ID: 1, Capacity: 900_000, Policy: rt.FixedPriority}, []rt.Server{
		{ID: "s0", Criticality: rt.High, Period: 40_000, Deadline: 40_000, Low: 4_000, High: 17_000, Priority: 10},
		{ID: "s1", Criticality: rt.Low, Period: 10_000, Deadline: 10_000, Low: 4_000, High: 4_000, Priority: 11},
	})
	if !p.Holds || !p.ModeSwitch || len(p.Squeeze) != 1 || p.Squeeze[0].FloorUs != 2000 {
		t.Fatalf("not a plan of two modes: %+v", p)
	}
	high := srv(0, "High", 4_000, 17_000)
	high.PeriodUs, high.DeadlineUs = 40_000, 40_000
	return newBench(t, governor.Options{}, int64(p.Threshold), high, srv(1, "Low", 4_000, 4_000)).squeezes(1)
}

// A victim whose container begins anew while a server is raised comes at its floor, and returns with the others.
func TestAVictimThatBeginsAnewDuringARaiseComesAtItsFloor(t *testing.T) {
	for name, has := range map[string]int64{"with no budget": 0, "with its low budget": 4000, "with less": 3000, "at its floor": 2000} {
		t.Run(name, func(t *testing.T) {
			b := twoModes(t).begun()
			b.pass(100 * ms)
			b.alarm(0, 0, governor.Raised)
			b.tickFor(60 * ms)
			b.has(17_000, 2000)
			b.servers[1].Cgroup = "/s1-again"
			b.budgets[1] = has
			b.InForce(1, has)
			b.load(0)
			b.has(17_000, 2000)
			b.tickFor(200 * ms)
			b.has(17_000, 2000)
			if !b.State(1).Squeezed {
				t.Error("it is not called squeezed")
			}
			b.pass(1000 * ms)
			b.clean(0, governor.Recovered)
			b.tickFor(100 * ms)
			b.has(4000, 4000)
		})
	}
}

// A server is admitted, in two modes, beside one that is raised already.
func TestAPlanThatGetsVictimsDuringARaise(t *testing.T) {
	b := twoModes(t)
	all, squeeze := b.servers, b.plan.Squeeze
	b.servers, b.plan.Squeeze = all[:1], nil
	b.begun()
	b.alarm(0, 0, governor.Raised)
	b.pass(100 * ms)
	b.servers, b.plan.Squeeze = all, squeeze
	b.load(0)
	b.tickFor(500 * ms)
	b.has(17_000, 2000)
}

// Who was there already becomes a victim.
func TestAServerThatBecomesAVictimDuringARaise(t *testing.T) {
	b := twoModes(t)
	squeeze := b.plan.Squeeze
	b.plan.Squeeze = nil
	b.begun()
	b.alarm(0, 0, governor.Raised)
	b.has(17_000, 4000)
	b.plan.Squeeze = squeeze
	b.load(0)
	b.has(17_000, 2000)
}

// A cut that the kernel refuses keeps the raise until it is there; one that it refuses again and again does not.
func TestARefusedCutKeepsTheRaiseForAWhile(t *testing.T) {
	b := twoModes(t).begun()
	b.pass(10 * ms)
	b.refuse = 1
	rearm := b.State(0).Rearm
	b.alarm(0, 0, governor.Refused)
	b.has(4000, 4000)
	if b.State(0).Rearm == rearm {
		t.Error("it is not told again in the window")
	}
	b.tickFor(ms)
	b.has(17_000, 2000)
}

// cutless is a kernel that lets one slot not have less.
type cutless struct {
	*kernel
	slot int
	err  error
}

func (k *cutless) Set(slot int, budgetUs int64) error {
	if slot == k.slot && budgetUs < k.budgets[slot] && k.err != nil {
		return k.err
	}
	return k.kernel.Set(slot, budgetUs)
}

func TestACutThatIsRefusedAgainAndAgain(t *testing.T) {
	b := twoModes(t).begun()
	k := &cutless{b.kernel, 1, errBusy}
	for i, want := range []governor.Kind{governor.Refused, governor.Refused, governor.Refused, governor.Raised} {
		if got := b.Alarm(0, b.now, b.now, k); got.Kind != want {
			t.Errorf("alarm %d: %v, want %v", i, got, want)
		}
	}
	b.has(17_000, 4000)
	k.err = nil
	b.pass(20 * ms)
	b.Tick(b.now, k)
	b.has(17_000, 2000)
}

// A victim that is gone has no budget, whatever the last one was.
func TestAVictimThatIsGoneKeepsNoServerFromARaise(t *testing.T) {
	b := twoModes(t).begun()
	if got := b.Alarm(0, b.now, b.now, &cutless{b.kernel, 1, fmt.Errorf("writing: %w", governor.ErrGone)}); got.Kind != governor.Raised {
		t.Error(got)
	}
}
