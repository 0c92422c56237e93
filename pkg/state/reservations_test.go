package state_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/pkg/state/statetest"
)

func TestReservationsAreExclusiveAndExpire(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(statetest.Birth)
	n := statetest.Node("n", "n-1")
	store, err := state.Build(state.Options{Clock: clk}, n, statetest.Slice(n, statetest.Cores(1)...))
	if err != nil {
		t.Fatal(err)
	}
	reserve := func(key string, lowMs int64, d time.Duration) error {
		return store.Reserve(state.Reservation{Key: key, Node: "n", Core: 0, Server: server(key, rt.Low, lowMs, lowMs), Until: clk.Now().Add(d)})
	}
	free := func(want rt.PPM) {
		t.Helper()
		if got := view(t, store.Snapshot(), "n").Cores[0].Free; got != want {
			t.Errorf("free is %d, want %d", got, want)
		}
	}
	if err := errors.Join(reserve("a", 40, time.Minute), reserve("b", 40, 2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	free(98_000)
	refused := &state.RefusedError{}
	if err := reserve("c", 40, time.Minute); !errors.As(err, &refused) || refused.Verdict.Reason != rt.ReasonCoreFull || refused.Verdict.Free() != 98_000 {
		t.Errorf("a third reservation: %v", err)
	}
	if err := reserve("a", 45, time.Minute); err != nil { // it replaces its own, not adds to it
		t.Error(err)
	}
	free(48_000)
	store.Release("a")
	store.Release("unknown")
	free(499_000)
	if err := reserve("c", 40, time.Minute); err != nil {
		t.Error(err)
	}
	clk.Step(time.Minute)
	free(499_000)
	clk.Step(time.Minute)
	free(900_000)
	if err := store.Reserve(state.Reservation{Key: "x", Node: "n", Core: 7}); !errors.As(err, &refused) || refused.Verdict.Reason != rt.ReasonNoCore {
		t.Errorf("a core that is not there: %v", err)
	}
}

// A reservation whose server has its claim there already is not counted twice.
func TestAReservationIsRedeemedByTheClaim(t *testing.T) {
	t.Parallel()
	n := statetest.Node("n", "n-1")
	p := statetest.WithClaim(statetest.Pod("default", "p", "p-1", "app"), "app", "p-claim")
	store, err := state.Build(state.Options{}, n, statetest.Slice(n, statetest.Cores(2)...), p, statetest.McKube("default", "m", "p", "High", 20, 30))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Reserve(state.Reservation{Key: "k", Node: "n", Core: 1, Server: server("p-1/app", rt.High, 20, 30), Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(statetest.Claim(p, "p-claim", "app", "n", 1, 301_000)); err != nil {
		t.Fatal(err)
	}
	if c := view(t, store.Snapshot(), "n").Cores[1]; c.Free != 599_000 || c.Reserved != 0 {
		t.Errorf("core is %+v", c)
	}
}

// Of many callers that saw the same room, exactly as many get it as there is room for. Readers never see more promised than
// there is.
func TestConcurrentReservationsNeverPromiseTooMuch(t *testing.T) {
	t.Parallel()
	store, err := state.Build(state.Options{}, statetest.Crowd(4)...)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := 0
	for worker := range 8 {
		wg.Go(func() {
			for i := range 40 {
				id := fmt.Sprintf("%d-%d", worker, i)
				s := server(id, rt.Low, 20, 20)
				for c, gates := store.Snapshot().BestCore(s); len(gates) == 0; c, gates = store.Snapshot().BestCore(s) {
					if store.Reserve(state.Reservation{Key: id, Node: c.Node, Core: c.Core, Server: s, Until: time.Now().Add(time.Hour)}) == nil {
						mu.Lock()
						admitted++
						mu.Unlock()
						break
					}
				}
				for n := range store.Snapshot().Nodes() {
					for _, c := range n.Cores {
						if c.Claimed+c.Reserved > c.Capacity {
							t.Errorf("node %s core %d: %d and %d of %d", n.Name, c.ID, c.Claimed, c.Reserved, c.Capacity)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	// 4 nodes: three cores take four of 20.1 %, one core with 50.1 % takes one.
	if admitted != 4*(3*4+1) {
		t.Errorf("%d were admitted, want %d", admitted, 4*13)
	}
}
