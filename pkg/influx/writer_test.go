package influx_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mainspring-rt/mainspring/pkg/influx"
)

// store keeps what is written, and fails as it is told.
type store struct {
	lock   sync.Mutex
	lines  []string
	next   []error       // of the next attempts
	poison string        // lines with it are refused
	calls  chan struct{} // one for each attempt that is over
}

func newStore() *store { return &store{calls: make(chan struct{}, 1000)} }

func (s *store) Write(_ context.Context, lines []string) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	defer func() { s.calls <- struct{}{} }()
	if len(s.next) > 0 {
		err := s.next[0]
		s.next = s.next[1:]
		if err != nil {
			return err
		}
	}
	if s.poison != "" && slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, s.poison) }) {
		return &influx.StatusError{Code: 400, Words: "partial write"}
	}
	s.lines = append(s.lines, lines...)
	return nil
}

func (s *store) names() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	var out []string
	for _, l := range s.lines {
		name, _, _ := strings.Cut(l, " ")
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

// desk is a writer with a clock that the test moves.
type desk struct {
	*testing.T
	*influx.Writer
	store *store
	clock *clocktesting.FakeClock
	end   func()
}

func newDesk(t *testing.T, limits influx.Limits) desk {
	t.Helper()
	d := desk{T: t, store: newStore(), clock: clocktesting.NewFakeClock(at)}
	d.Writer = influx.NewWriter(d.store, limits, d.clock)
	return d
}

func (d *desk) start() {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = d.Start(ctx)
	}()
	d.end = func() {
		cancel()
		<-over
	}
	d.Cleanup(d.end)
}

func (d *desk) add(names ...string) {
	d.Helper()
	for _, n := range names {
		if err := d.Add(influx.Point{Measurement: n, Fields: map[string]any{"f": int64(1)}, Time: at}); err != nil {
			d.Fatal(err)
		}
	}
}

// pass waits until the writer rests, and lets that time go by; then for the attempt that follows.
func (d *desk) pass(rest time.Duration) {
	d.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !d.clock.HasWaiters() {
		if time.Now().After(deadline) {
			d.Fatal("the writer does not rest")
		}
		time.Sleep(time.Millisecond) // yields; the state is looked at
	}
	d.clock.Step(rest - time.Nanosecond)
	select {
	case <-d.store.calls:
		d.Fatalf("it has not rested for %s", rest)
	default:
	}
	d.clock.Step(time.Nanosecond)
	<-d.store.calls
}

var few = influx.Limits{Points: 4, Batch: 3, Linger: time.Second, Timeout: time.Second, Rest: 2 * time.Second, LongestRest: 10 * time.Second, Farewell: time.Second}

func TestAnOutageDelaysNobodyAndLosesOnlyTheOldest(t *testing.T) {
	t.Parallel()
	d := newDesk(t, few)
	down := errors.New("connection refused")
	d.store.next = []error{down, down, &influx.StatusError{Code: 503, RetryAfter: "9"}, &influx.StatusError{Code: 401}, down, nil}
	d.start()
	d.add("a")
	for _, rest := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 9 * time.Second, 10 * time.Second} {
		d.pass(rest)
	}
	d.add("b", "c", "d", "e", "f") // four are kept
	d.pass(10 * time.Second)       // a batch of three; the last one lingers
	d.end()
	if got := d.store.names(); got != "c d e f" {
		t.Errorf("stored %s", got)
	}
}

func TestOnlyThePointIsDroppedThatInfluxDBRefuses(t *testing.T) {
	t.Parallel()
	d := newDesk(t, influx.Limits{Points: 100, Batch: 8, Linger: time.Second, Timeout: time.Second, Rest: time.Second, LongestRest: time.Second, Farewell: time.Minute})
	d.store.poison = "bad"
	d.add("a", "b", "bad", "c", "d", "e", "bad2", "f")
	d.start()
	d.end() // what is left is sent at the end
	if got := d.store.names(); got != "a b c d e f" {
		t.Errorf("stored %s", got)
	}
}

func TestAFailureWithinABatchKeepsTheRest(t *testing.T) {
	t.Parallel()
	d := newDesk(t, influx.Limits{Points: 100, Batch: 4, Linger: time.Second, Timeout: time.Second, Rest: time.Second, LongestRest: time.Second, Farewell: time.Minute})
	refused := &influx.StatusError{Code: 400}
	d.store.next = []error{refused, nil, errors.New("down")} // of four: refused; the first two: stored; the last two: not
	d.add("a", "b", "c", "d")
	d.start()
	for range 3 {
		<-d.store.calls
	}
	d.pass(time.Second)
	d.end()
	if got := d.store.names(); got != "a b c d" {
		t.Errorf("stored %s", got)
	}
}

func TestAddingNeverWaits(t *testing.T) {
	t.Parallel()
	d := newDesk(t, influx.Limits{Points: 10, Batch: 5}) // nobody has started it
	for i := range 1000 {
		d.add(fmt.Sprint("p", i))
	}
	if err := d.Add(influx.Point{}); err == nil {
		t.Error("a point without a name was taken")
	}
}
