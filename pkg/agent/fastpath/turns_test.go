package fastpath_test

import (
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// stalling is the clock of a machine that stands still now and then, for 5 to 36 ms, in the middle of anything: so a
// hypervisor does that has other work. A look at it takes a microsecond.
type stalling struct {
	random *rand.Rand
	now    int64
	next   int64 // when it stands still again
	stalls int
}

func (c *stalling) look() int64 {
	c.now += 1_000
	if c.now >= c.next {
		c.stalls++
		c.now += 5_000_000 + c.random.Int64N(31_000_000)
		c.next = c.now + c.random.Int64N(60_000_000)
	}
	return c.now
}

// busyRing is the ring of a core whose servers use up what they have in every period, as far as the stalls let them.
type busyRing struct {
	clock         *stalling
	programs      *programs
	ids           []uint64
	until, ends   int64
	gap           int64 // between two events of a server, at most
	events, turns int
	hasty         int
	at            []int64 // when each server is heard of next
}

func (r *busyRing) Hold(bool)    {}
func (r *busyRing) Wake()        {}
func (r *busyRing) Close() error { return nil }
func (r *busyRing) SetDeadline(at int64) {
	r.until = at
	if at <= r.clock.now {
		r.hasty++
	}
}

func (r *busyRing) Next(e *ebpf.Event) error {
	r.clock.look()
	if r.clock.now > r.ends {
		return os.ErrClosed
	}
	first := 0
	for i := range r.at {
		if r.at[i] < r.at[first] {
			first = i
		}
	}
	if r.at[first] > r.until {
		r.clock.now = max(r.clock.now, r.until)
		r.turns++
		return ebpf.ErrDeadline
	}
	r.clock.now = max(r.clock.now, r.at[first])
	kinds := []uint32{ebpf.KindAlarm, ebpf.KindEnd, ebpf.KindWindow, ebpf.KindThrottled, ebpf.KindClean}
	*e = r.programs.event(r.ids[first], kinds[r.clock.random.IntN(len(kinds))], r.at[first])
	if r.clock.random.IntN(3) == 0 {
		e.UsedNs *= 7 // a stall was charged to it
	}
	r.at[first] += 1 + r.clock.random.Int64N(r.gap)
	r.events++
	return nil
}

// busyPrograms have such rings.
type busyPrograms struct {
	*programs
	ring *busyRing
}

func (p *busyPrograms) Ring(int) (fastpath.Ring, error) { return p.ring, nil }

// A core's thread runs at a priority above every container. Whatever stalls of the machine do to what is due, it never asks to be
// woken in the past, and turns round about as often as something happens.
func TestStallsHaveTheReaderTurnABoundedNumberOfTimes(t *testing.T) {
	for seed := range uint64(20) {
		clock := &stalling{random: rand.New(rand.NewPCG(seed, 7)), now: 1_000_000_000, next: 1_000_000_000}
		k := newKernel("/a", "/b", "/c", "/d")
		k.enforce = seed%2 == 0
		p := newPrograms()
		ring := &busyRing{clock: clock, programs: p, ids: []uint64{100, 101, 102, 103}, at: make([]int64, 4), gap: 40_000_000 << (seed % 5)}
		engine, err := fastpath.New(fastpath.Options{
			Backend: k, Programs: &busyPrograms{p, ring}, Cores: []int{0}, GranularityUs: 100, ChargeUs: 100, Lead: 200 * time.Microsecond,
			StateDir: t.TempDir(), Now: clock.look, Wall: clock.look, Instance: "one", Version: "test",
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Apply(crowded()); err != nil {
			t.Fatal(err)
		}
		if seed%4 < 2 { // a kernel that refuses
			k.groups["/b"].setErr = actuator.ErrNoRoom
		}
		const seconds = 20
		ring.ends = clock.now + seconds*1_000_000_000
		ended := make(chan error)
		go func() {
			runtime.LockOSThread() // for good: the thread stays on the core
			ended <- fastpath.RunCore(engine, 0)
		}()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if ring.hasty > 0 {
			t.Errorf("seed %d: the thread asked %d times to be woken in the past", seed, ring.hasty)
		}
		if most := 10*seconds + 3*ring.events + 3*clock.stalls; ring.turns > most {
			t.Errorf("seed %d: %d turns for %d events and %d stalls in %d s; want at most %d", seed, ring.turns, ring.events, clock.stalls, seconds, most)
		}
		t.Logf("seed %d: %d turns, %d events, %d stalls", seed, ring.turns, ring.events, clock.stalls)
	}
}

// crowded is a core that is too full for all its raises, with servers that give way and wait.
func crowded() table.Table {
	a, b, c, d := high("a", "/a", 0), high("b", "/b", 0), high("c", "/c", 0), high("d", "/d", 0)
	b.Criticality, c.Criticality, d.Criticality = "Middle", "Low", "Low"
	c.PeriodUs, c.DeadlineUs = 20_000, 20_000
	out := tableOf(1, a, b, c, d)
	out.Plans[0].Raise = out.Plans[0].Raise[:2]
	out.Plans[0].Squeeze = []table.Squeeze{{ID: "d", FloorUs: 500}, {ID: "c", FloorUs: 500}}
	return out
}
