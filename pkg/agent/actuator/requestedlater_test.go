package actuator

import (
	"errors"
	"testing"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// unmade is a container that its runtime has asked for, and has not made yet.
func unmade(t *testing.T, l layout) *requestedOne {
	t.Helper()
	r := asks(t, l)
	delete(r.threads, r.tid)
	r.remove(r.server.Cgroup)
	return r
}

// A runtime that was answered may make the container once all was put back: on the core that it was told, and without the budget that no level has room
// for any more. That is put back, too, when it comes.
func TestAContainerThatComesOnceAllWasPutBack(t *testing.T) {
	for name, come := range map[string]func(*requestedOne){
		"to the same process": func(*requestedOne) {},
		"to the next":         func(r *requestedOne) { r.b = r.probe(r.backend) },
	} {
		for _, l := range layouts {
			t.Run(name+", "+l.name, func(t *testing.T) {
				t.Parallel()
				r := unmade(t, l)
				must(t, r.b.Restore())
				come(r)
				r.sweep(time.Second)
				r.make()
				r.write(table.First{})
				r.late()
				r.asWithoutUs()
			})
		}
	}
}

// One that does not come leaves nothing.
func TestAContainerThatDoesNotComeOnceAllWasPutBack(t *testing.T) {
	for _, l := range layouts {
		r := unmade(t, l)
		must(t, r.b.Restore())
		r.sweep(comesWithin + time.Second)
		if j, err := openJournal(r.state, "boot-1"); err != nil || len(j.records) != 0 {
			t.Errorf("%s: the journal has %v, %v; want nothing", l.name, j.records, err)
		}
	}
}

// A container for which there is no room is made all the same, without a budget and on the core that its runtime was told. That core is not what it had
// before, and no room is kept for it meanwhile, by any process.
func TestAContainerThatThereIsNoRoomFor(t *testing.T) {
	for name, restart := range map[string]bool{"the same process": false, "the next": true} {
		t.Run(name, func(t *testing.T) {
			r := unmade(t, layouts[0])
			must(t, r.b.Restore())
			r.sweep(comesWithin + time.Second)
			other := serverOf(r.others.bestEffort)
			other.BudgetUs, other.HighUs = other.PeriodUs*9/10, other.PeriodUs*9/10
			g := mustOpen(t, r.b, other)
			had := r.get("cpu", "/kubepods", rtRuntime)
			if _, err := r.b.Room(r.server); !errors.Is(err, ErrNoRoom) {
				t.Fatalf("Room: %v; want %v", err, ErrNoRoom)
			}
			if restart {
				r.b = r.probe(RTGroup)
				g = mustOpen(t, r.b, other)
			}
			r.sweep(time.Second)
			if got := r.get("cpu", "/kubepods", rtRuntime); got != had {
				t.Errorf("kubepods has %s us; want %s as before", got, had)
			}
			r.make()
			r.write(table.First{})
			r.sweep(time.Second)
			must(t, g.Close(true))
			must(t, mustOpen(t, r.b, r.server).Close(true))
			r.sweep(settleAfter + time.Second)
			r.sweep(settleAfter + time.Second)
			r.asWithoutUs()
		})
	}
}

// Room that there is after all is kept, also by the next process.
func TestRoomThatThereIsAfterAll(t *testing.T) {
	r := unmade(t, layouts[0])
	must(t, r.b.Restore())
	for range 2 {
		if _, err := r.b.Room(r.server); err != nil {
			t.Fatal(err)
		}
		r.b = r.probe(RTGroup)
		r.sweep(time.Second)
		if got := r.get("cpu", "/kubepods", rtRuntime); got != "12012000" {
			t.Errorf("kubepods has %s us; want 12012000", got)
		}
	}
}
