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

// Doorbell has the loop run now. Searches of the standard methods that are under way end, and those that would
// follow in the same pass do not begin: a pass ends soon after it was rung, and the next begins with what is urgent.
type Doorbell struct {
	mutex sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// rung is closed while somebody waits for the loop's next pass.
	rung chan struct{}
	open bool
}

// NewDoorbell makes one that nobody has rung.
func NewDoorbell() *Doorbell { return &Doorbell{rung: make(chan struct{})} }

// Ring asks for a pass.
func (d *Doorbell) Ring() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !d.open {
		d.open = true
		close(d.rung)
	}
	if d.queue != nil {
		d.queue.Add(reconcile.Request{})
	}
}

// answer says that a pass begins. Whoever rang before it is served by it.
func (d *Doorbell) answer() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.open {
		d.open, d.rung = false, make(chan struct{})
	}
}

func (d *Doorbell) wait() <-chan struct{} {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.rung
}

// ringing tells whether somebody waits for the next pass.
func (d *Doorbell) ringing() bool {
	select {
	case <-d.wait():
		return true
	default:
		return false
	}
}

// source feeds the loop with the request that its own source feeds it with, so that passes never overlap.
func (d *Doorbell) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		d.queue = queue
		return nil
	})
}

// search is the context of a search that the doorbell ends. It then says that its deadline is exceeded, which
// Karpenter's methods take for their own timeout: they give up, and keep the loop running.
type search struct {
	context.Context
	done, ended chan struct{}
	err         error
}

// search begins one. It must be stopped.
func (d *Doorbell) search(ctx context.Context) *search {
	s := &search{Context: ctx, done: make(chan struct{}), ended: make(chan struct{})}
	rung := d.wait()
	go func() {
		defer close(s.done)
		select {
		case <-rung:
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

// hurried is the clock of the standard methods. Once the doorbell was rung, each look at it shows a time after any
// timeout that began before: single-node consolidation looks at no context, only at the time, between two nodes.
type hurried struct {
	clock.Clock
	bell *Doorbell

	mutex sync.Mutex
	ahead time.Duration
}

// Now implements clock.Clock.
func (h *hurried) Now() time.Time {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if !h.bell.ringing() {
		h.ahead = 0
	} else {
		h.ahead += disruption.SingleNodeConsolidationTimeoutDuration + time.Second
	}
	return h.Clock.Now().Add(h.ahead)
}
