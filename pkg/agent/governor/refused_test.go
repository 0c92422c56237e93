package governor_test

import (
	"errors"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// refusing is a kernel that lets one slot have no more.
type refusing struct {
	*kernel
	slot int
}

func (k refusing) Set(slot int, budgetUs int64) error {
	if slot == k.slot && budgetUs > k.budgets[slot] {
		return errBusy
	}
	return k.kernel.Set(slot, budgetUs)
}

// A table asks for more for one server, and the kernel refuses. If that is told at once (and the asker then takes the
// former table back), then no server has given way for it. Room that others make is there only after their deadlines,
// and what needs it is not written before.
func TestARefusalThatIsToldAtOnceHasCostNoServerAnything(t *testing.T) {
	told, squeezed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		idle := rapid.Bool().Draw(t, "idle")
		k := &kernel{budgets: map[int]int64{}}
		now := start
		c := governor.New(governor.Options{EDF: rapid.Bool().Draw(t, "edf"), Seen: func(int) int64 {
			if idle {
				return 0
			}
			return now
		}})
		plan := table.Plan{Core: 1, ThresholdPpm: 900_000}
		var servers []governor.Server
		for slot := range rapid.IntRange(2, 6).Draw(t, "servers") {
			low := rapid.Int64Range(500, 3000).Draw(t, "low")
			s := srv(slot, rapid.SampledFrom([]string{"High", "Middle", "Low"}).Draw(t, "criticality"), low, low+rapid.Int64Range(0, 3000).Draw(t, "more"))
			if rapid.IntRange(0, 3).Draw(t, "reserved") == 0 {
				s.Mode = table.Reserved
			}
			if rapid.IntRange(0, 3).Draw(t, "not raised") == 0 {
				s.RaiseToUs = 0
			}
			if rapid.Bool().Draw(t, "gives way") {
				plan.Squeeze = append(plan.Squeeze, table.Squeeze{ID: s.ID, FloorUs: low / 2})
			}
			servers = append(servers, s)
		}
		c.Load(servers, plan, now, k)
		for range rapid.IntRange(0, 8).Draw(t, "alarms") {
			now += rapid.Int64Range(0, 30).Draw(t, "passes") * ms
			c.Alarm(rapid.IntRange(0, len(servers)-1).Draw(t, "raised"), now, now, k)
			c.Tick(now, k)
		}
		asked := &servers[rapid.IntRange(0, len(servers)-1).Draw(t, "asked")]
		asked.LeastUs = rapid.Int64Range(asked.LowUs, asked.HighUs).Draw(t, "least")
		if c.State(asked.Slot).Squeezed {
			return // see TestAnAskerThatGaveWayItself
		}
		before := maps.Clone(k.budgets)
		faults := c.Load(servers, plan, now, refusing{k, asked.Slot})
		if !maps.Equal(before, k.budgets) {
			squeezed++
		}
		var unset *governor.UnsetError
		for _, f := range faults {
			if f.Slot != asked.Slot || !errors.As(f.Err, &unset) {
				continue
			}
			told++
			if !maps.Equal(before, k.budgets) {
				t.Fatalf("the budgets were %v; after the refusal they are %v", before, k.budgets)
			}
		}
	})
	if told == 0 || squeezed == 0 {
		t.Errorf("of all histories %d were told a refusal, %d had others give way; want some of both", told, squeezed)
	}
}

// Who has given way itself is asked for more: raises of others are given back for it, before it is known that the kernel refuses. They
// come again with the next overrun.
func TestAnAskerThatGaveWayItself(t *testing.T) {
	b := newBench(t, governor.Options{}, 900_000, srv(0, "High", 2000, 5000), srv(1, "Middle", 1000, 1001), srv(2, "High", 3500, 3500)).squeezes(1).begun()
	b.alarm(0, 0, governor.Partial)
	b.has(4500, 500, 3500)
	b.servers[1].LeastUs = 1001
	if faults := b.Load(b.servers, b.plan, b.now, refusing{b.kernel, 1}); len(faults) != 1 {
		t.Errorf("faults %v; want that of the kernel", faults)
	}
	b.has(2000, 500, 3500)
	b.servers[1].LeastUs = 1000 // the former table
	b.load(0)
	b.tickFor(20 * ms)
	b.has(2000, 1000, 3500)
	b.alarm(0, 0, governor.Partial)
	b.tickFor(20 * ms)
	b.has(5000, 500, 3500)
}

// A victim whose budget the kernel does not give back keeps no other down, and is tried again.
func TestARefusedRestoreKeepsNoOtherServerDown(t *testing.T) {
	b := crowded(t).begun()
	b.alarm(0, 0, governor.Denied)
	b.tickFor(20 * ms)
	b.has(4000, 2000, 1000, 1000)
	b.pass(1000 * ms)
	b.clean(0, governor.Recovered)
	k := refusing{b.kernel, 2}                    // the last who was squeezed
	pass := func(ns int64, set governor.Setter) { // as the core asks to tick
		for until := b.now + ns; ; {
			next := b.Tick(b.now, set)
			if next == 0 || next > until {
				b.now = until
				return
			}
			b.now = next
		}
	}
	pass(30*ms, k)
	b.has(2000, 2000, 1000, 2000)
	if !b.State(2).Squeezed || b.State(3).Squeezed {
		t.Errorf("squeezed: 2 %v, 3 %v; want the one whom the kernel refuses alone", b.State(2).Squeezed, b.State(3).Squeezed)
	}
	pass(10_000*ms, k)
	if n := b.State(2).Refused; n < 5 || n > 30 {
		t.Errorf("it was refused %d times in 10 s; want it tried again, at most once a second in the end", n)
	}
	pass(1_000*ms, b.kernel)
	b.has(2000, 2000, 2000, 2000)
}
