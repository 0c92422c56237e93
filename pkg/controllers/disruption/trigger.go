package disruption

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
)

// Trigger has the loop run now. It ends the searches of the standard methods that are under way, and keeps those that would
// follow in the same pass from beginning. So a pass ends soon after the trigger was fired, and the next one begins with what
// is urgent.
type Trigger struct {
	mutex sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// fired is closed while a caller of Fire waits for the loop's next pass.
	fired chan struct{}
	open  bool
}

// NewTrigger makes a trigger that no caller has fired yet.
func NewTrigger() *Trigger { return &Trigger{fired: make(chan struct{})} }

// Fire asks for a pass.
func (t *Trigger) Fire() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.open {
		t.open = true
		close(t.fired)
	}
	if t.queue != nil {
		t.queue.Add(reconcile.Request{})
	}
}

// beginPass says that a pass begins. This pass serves every caller that fired the trigger before it.
func (t *Trigger) beginPass() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.open {
		t.open, t.fired = false, make(chan struct{})
	}
}

func (t *Trigger) wait() <-chan struct{} {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.fired
}

// pending tells whether a caller of Fire waits for the next pass.
func (t *Trigger) pending() bool {
	select {
	case <-t.wait():
		return true
	default:
		return false
	}
}

// source feeds the loop with the request that its own source feeds it with, so that passes never overlap.
func (t *Trigger) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		t.queue = queue
		return nil
	})
}

// search is the context of a search that the trigger ends. It then says that its deadline is exceeded. Karpenter's methods
// take that for their own timeout: they give up, and keep the loop running.
type search struct {
	context.Context
	done, ended chan struct{}
	err         error
}

// search begins one. It must be stopped.
func (t *Trigger) search(ctx context.Context) *search {
	s := &search{Context: ctx, done: make(chan struct{}), ended: make(chan struct{})}
	fired := t.wait()
	go func() {
		defer close(s.done)
		select {
		case <-fired:
			s.err = context.DeadlineExceeded
		case <-ctx.Done():
			s.err = ctx.Err()
		case <-s.ended:
			s.err = context.Canceled
		}
	}()
	return s
}

// stop ends the search, if nothing else has.
func (s *search) stop() {
	close(s.ended)
	<-s.done
}

// Done implements context.Context.
func (s *search) Done() <-chan struct{} { return s.done }

// Err implements context.Context.
func (s *search) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// earlyClock is the clock of the standard methods. Once the trigger was fired, each look at the clock shows a time after any
// timeout that began before. Single-node consolidation looks at no context between two nodes, only at the time.
type earlyClock struct {
	clock.Clock
	trigger *Trigger

	mutex sync.Mutex
	ahead time.Duration
}

// Now implements clock.Clock.
func (c *earlyClock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.trigger.pending() {
		c.ahead = 0
	} else {
		c.ahead += disruption.SingleNodeConsolidationTimeoutDuration + time.Second
	}
	return c.Clock.Now().Add(c.ahead)
}
