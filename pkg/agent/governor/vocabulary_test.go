package governor_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

const ms = int64(time.Millisecond)

// start is when tests begin: any time but 0.
const start = 1000 * ms

var errBusy = errors.New("device or resource busy")

// kernel has budgets in force, by slot.
type kernel struct {
	budgets map[int]int64
	writes  []string
	refuse  int // that many writes from now on
}

func (k *kernel) Set(slot int, budgetUs int64) error {
	if k.refuse > 0 {
		k.refuse--
		return errBusy
	}
	k.budgets[slot] = budgetUs
	k.writes = append(k.writes, fmt.Sprintf("%d=%d", slot, budgetUs))
	return nil
}

// bench is a core under test with its kernel, its table and the time.
type bench struct {
	*testing.T
	*governor.Core
	*kernel
	now     int64
	servers []governor.Server
	plan    table.Plan
}

func newBench(t *testing.T, o governor.Options, threshold int64, servers ...governor.Server) *bench {
	t.Helper()
	t.Parallel()
	return newBenchSerial(t, o, threshold, servers...)
}

// newBenchSerial is for the second core of a test.
func newBenchSerial(t *testing.T, o governor.Options, threshold int64, servers ...governor.Server) *bench {
	b := &bench{T: t, Core: governor.New(o), kernel: &kernel{budgets: map[int]int64{}}, now: start, servers: servers}
	b.plan = table.Plan{Core: 1, ThresholdPpm: threshold}
	if slices.ContainsFunc(servers, func(s governor.Server) bool { return s.Limited }) {
		b.plan.MaxRaised = len(servers) // no fewer than could need one
	}
	return b
}

// squeezes lists victims in the plan, first to last, down to half their low budgets.
func (b *bench) squeezes(slots ...int) *bench {
	for _, slot := range slots {
		s := b.servers[slot]
		b.plan.Squeeze = append(b.plan.Squeeze, table.Squeeze{ID: s.ID, FloorUs: s.LowUs / 2})
	}
	return b
}

// srv is a server of 10 ms that may be raised as far as it was admitted.
func srv(slot int, criticality string, low, high int64) governor.Server {
	s := governor.Server{Slot: slot, RaiseToUs: high}
	s.Server = table.Server{
		ID: fmt.Sprint("s", slot), Cgroup: fmt.Sprint("/s", slot), Criticality: criticality, PeriodUs: 10_000, DeadlineUs: 10_000,
		LowUs: low, HighUs: high, LeastUs: low, Core: 1, Mode: table.Elastic, Overruns: 1, Periods: 1,
	}
	return s
}

// unplanned is a server that the plan does not raise.
func unplanned(s governor.Server) governor.Server {
	s.RaiseToUs = 0
	return s
}

func limited(s governor.Server) governor.Server {
	s.Limited = true
	return s
}

func reserved(s governor.Server) governor.Server {
	s.Mode = table.Reserved
	return s
}

// load applies the table and expects that many faults.
func (b *bench) load(faults int) []governor.Fault {
	b.Helper()
	b.writes = nil
	got := b.Load(b.servers, b.plan, b.now, b.kernel)
	if len(got) != faults {
		b.Errorf("%d faults, want %d: %v", len(got), faults, got)
	}
	return got
}

// begun loads a table that must fit.
func (b *bench) begun() *bench {
	b.Helper()
	b.load(0)
	return b
}

func (b *bench) pass(ns int64) { b.now += ns }

// alarm tells that the level of a slot ends now, in a period that was released that long ago.
func (b *bench) alarm(slot int, ago int64, want governor.Kind) {
	b.Helper()
	if got := b.Alarm(slot, b.now-ago, b.now, b.kernel); got.Kind != want {
		b.Errorf("at %d ms: alarm of %d: %v, want %v", (b.now-start)/ms, slot, got, want)
	}
}

func (b *bench) end(slot int, want governor.Kind) {
	b.Helper()
	if got := b.End(slot, b.now, b.now, b.kernel); got.Kind != want {
		b.Errorf("at %d ms: end of %d: %v, want %v", (b.now-start)/ms, slot, got, want)
	}
}

func (b *bench) clean(slot int, want governor.Kind) {
	b.Helper()
	if got := b.Clean(slot, b.now, b.kernel); got.Kind != want {
		b.Errorf("at %d ms: clean window of %d: %v, want %v", (b.now-start)/ms, slot, got, want)
	}
}

// has expects budgets in force, from slot 0 on.
func (b *bench) has(budgets ...int64) {
	b.Helper()
	for slot, want := range budgets {
		if got := b.budgets[slot]; got != want || b.State(slot).BudgetUs != want {
			b.Errorf("at %d ms: %d has %d us in force, %d in its state; want %d", (b.now-start)/ms, slot, got, b.State(slot).BudgetUs, want)
		}
	}
	if b.Broken() != 0 {
		b.Errorf("the plan was broken %d times", b.Broken())
	}
}

func (b *bench) wrote(writes ...string) {
	b.Helper()
	if !slices.Equal(b.writes, writes) {
		b.Errorf("at %d ms: wrote %v, want %v", (b.now-start)/ms, b.writes, writes)
	}
	b.writes = nil
}

// tickFor lets the core tick as it asks for, for a time.
func (b *bench) tickFor(ns int64) {
	b.Helper()
	until := b.now + ns
	for range 100_000 {
		next := b.Tick(b.now, b.kernel)
		if next != 0 && next <= b.now {
			b.Fatalf("the next tick is %d ns ago", b.now-next)
		}
		if next == 0 || next > until {
			b.now = until
			return
		}
		b.now = next
	}
	b.Fatal("the core ticks all the time")
}
