package disruption_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpdisruption "sigs.k8s.io/karpenter/pkg/controllers/disruption"

	"github.com/mainspring-rt/mainspring/pkg/controllers/disruption"
)

// A context that Karpenter derives for its own timeout must tell the trigger from the end of the process.
func TestTheTriggerEndsSearchesAsTimeoutsDo(t *testing.T) {
	t.Parallel()
	trigger := disruption.NewTrigger()
	search := disruption.Search(trigger, t.Context())
	defer search.Stop()
	derived, cancel := context.WithTimeout(search, time.Hour)
	defer cancel()
	if derived.Err() != nil {
		t.Fatalf("it has ended with %v before anybody rang", derived.Err())
	}
	trigger.Fire()
	<-derived.Done()
	if !errors.Is(derived.Err(), context.DeadlineExceeded) || !errors.Is(search.Err(), context.DeadlineExceeded) {
		t.Errorf("derived: %v, search: %v, want both: deadline exceeded", derived.Err(), search.Err())
	}

	trigger.BeginPass()
	next := disruption.Search(trigger, t.Context())
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
	search := disruption.Search(disruption.NewTrigger(), ctx)
	defer search.Stop()
	cancel()
	<-search.Done()
	if !errors.Is(search.Err(), context.Canceled) {
		t.Errorf("ended with %v, want canceled: no method may take that for its timeout", search.Err())
	}
}

// Single-node consolidation compares the time before each node with the timeout that it has set at first.
func TestEarlyClocksAreBeyondEveryTimeout(t *testing.T) {
	t.Parallel()
	trigger, base := disruption.NewTrigger(), clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	clk := disruption.NewEarlyClock(base, trigger)
	if !clk.Now().Equal(base.Now()) {
		t.Fatal("it is fast although nobody rang")
	}
	for range 3 { // whether the trigger was fired before the timeout was set or after
		timeout := clk.Now().Add(karpdisruption.SingleNodeConsolidationTimeoutDuration)
		trigger.Fire()
		if !clk.Now().After(timeout) {
			t.Error("the method would look at another node")
		}
	}
	trigger.BeginPass()
	if !clk.Now().Equal(base.Now()) {
		t.Error("it is still fast in the next pass")
	}
}

// A caller that fires the trigger gets a pass of the loop. The trigger makes the request that the loop's own source makes, so
// that the loop makes one pass at a time.
func TestTheTriggerWakesTheLoop(t *testing.T) {
	t.Parallel()
	trigger := disruption.NewTrigger()
	trigger.Fire() // before the loop has started: its first pass serves every caller
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if err := disruption.Source(trigger).Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	trigger.BeginPass()
	trigger.Fire()
	trigger.Fire()
	if queue.Len() != 1 {
		t.Fatalf("%d passes are asked for, want 1", queue.Len())
	}
	if request, _ := queue.Get(); request != (reconcile.Request{}) {
		t.Errorf("the request is %v, want that of Karpenter's source", request)
	}
}
