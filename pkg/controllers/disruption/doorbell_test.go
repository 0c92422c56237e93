package disruption_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	karpdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"

	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
)

// A context that Karpenter derives for its own timeout must tell the doorbell from the end of the process.
func TestTheDoorbellEndsSearchesAsTimeoutsDo(t *testing.T) {
	t.Parallel()
	bell := disruption.NewDoorbell()
	search := disruption.Search(bell, t.Context())
	defer search.Stop()
	derived, cancel := context.WithTimeout(search, time.Hour)
	defer cancel()
	if derived.Err() != nil {
		t.Fatalf("it has ended with %v before anybody rang", derived.Err())
	}
	bell.Ring()
	<-derived.Done()
	if !errors.Is(derived.Err(), context.DeadlineExceeded) || !errors.Is(search.Err(), context.DeadlineExceeded) {
		t.Errorf("derived: %v, search: %v, want both: deadline exceeded", derived.Err(), search.Err())
	}

	bell.Answer()
	next := disruption.Search(bell, t.Context())
	if next.Err() != nil {
		t.Errorf("the next pass's search has ended with %v", next.Err())
	}
	next.Stop()
	if !errors.Is(next.Err(), context.Canceled) {
		t.Errorf("stopped: %v", next.Err())
	}
}

func TestSearchesEndWithTheProcess(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	search := disruption.Search(disruption.NewDoorbell(), ctx)
	defer search.Stop()
	cancel()
	<-search.Done()
	if !errors.Is(search.Err(), context.Canceled) {
		t.Errorf("ended with %v, want canceled: no method may take that for its timeout", search.Err())
	}
}

// Single-node consolidation compares the time before each node with the timeout that it has set at first.
func TestHurriedClocksAreBeyondEveryTimeout(t *testing.T) {
	t.Parallel()
	bell, base := disruption.NewDoorbell(), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	clk := disruption.NewHurried(base, bell)
	if !clk.Now().Equal(base.Now()) {
		t.Fatal("it is fast although nobody rang")
	}
	for range 3 { // whether it was rung before the timeout was set or after
		timeout := clk.Now().Add(karpdisruption.SingleNodeConsolidationTimeoutDuration)
		bell.Ring()
		if !clk.Now().After(timeout) {
			t.Error("the method would look at another node")
		}
	}
	bell.Answer()
	if !clk.Now().Equal(base.Now()) {
		t.Error("it is still fast in the next pass")
	}
}
