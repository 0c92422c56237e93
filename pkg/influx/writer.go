package influx

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// Limits of a Writer.
type Limits struct {
	// Points that are kept at most. Of more the oldest are dropped.
	Points int
	// Batch is how many are sent at once.
	Batch int
	// Linger is how long a point may wait for others.
	Linger time.Duration
	// Timeout of one attempt.
	Timeout time.Duration
	// Rest after an attempt that failed, doubled with each further one up to LongestRest.
	Rest, LongestRest time.Duration
	// Farewell is how long the last points may take when the Writer ends.
	Farewell time.Duration
}

// Defaults of the limits.
func Defaults() Limits {
	return Limits{
		Points: 10_000, Batch: 500, Linger: time.Second, Timeout: 10 * time.Second, Rest: time.Second, LongestRest: time.Minute,
		Farewell: 3 * time.Second,
	}
}

// Store is where lines go.
type Store interface {
	Write(ctx context.Context, lines []string) error
}

// Writer keeps points until they are stored. It is safe for concurrent use.
type Writer struct {
	store  Store
	limits Limits
	clock  clock.Clock

	lock  sync.Mutex
	lines []string
	first uint64 // number of lines[0], counted from the first line ever kept
	bell  chan struct{}
}

// NewWriter makes one. Nothing is sent before Start.
func NewWriter(store Store, limits Limits, clk clock.Clock) *Writer {
	return &Writer{store: store, limits: limits, clock: clk, bell: make(chan struct{}, 1)}
}

// Add keeps a point and returns at once, whatever InfluxDB does. An error is the point's.
func (w *Writer) Add(p Point) error {
	line, err := p.Line()
	if err != nil {
		metrics.SinkPoints.WithLabelValues(metrics.SinkInflux, metrics.PointInvalid).Inc()
		return err
	}
	w.lock.Lock()
	w.lines = append(w.lines, line)
	if over := len(w.lines) - w.limits.Points; over > 0 {
		w.cut(over)
		metrics.SinkPoints.WithLabelValues(metrics.SinkInflux, metrics.PointOverflow).Add(float64(over))
	}
	w.tell()
	w.lock.Unlock()
	select {
	case w.bell <- struct{}{}:
	default: // it rings already
	}
	return nil
}

// cut takes the oldest away.
func (w *Writer) cut(n int) {
	w.lines = append([]string(nil), w.lines[n:]...)
	w.first += uint64(n)
}

func (w *Writer) tell() {
	metrics.SinkBuffered.WithLabelValues(metrics.SinkInflux).Set(float64(len(w.lines)))
}

// Start sends points until the context ends, and then, for a moment, what is left.
func (w *Writer) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithName("influxdb")
	failures, rest := 0, time.Duration(0)
	for {
		if !w.wait(ctx, rest) {
			w.farewell(ctx)
			return nil
		}
		err := w.send(ctx)
		switch {
		case err == nil && failures > 0:
			log.Info("InfluxDB takes points again", "failedAttempts", failures)
			failures, rest = 0, 0
		case err != nil:
			if failures == 0 && ctx.Err() == nil { // once for each outage: metrics tell the rest
				log.Error(err, "InfluxDB does not take points; they are kept and sent later")
			}
			rest = min(max(w.limits.Rest<<min(failures, 16), retryAfter(err)), w.limits.LongestRest)
			failures++
		}
	}
}

// wait for points and then for others beside them, or, after a failure, for the end of the rest; false: the end has come.
func (w *Writer) wait(ctx context.Context, rest time.Duration) bool {
	if rest == 0 {
		for w.buffered() == 0 {
			select {
			case <-ctx.Done():
				return false
			case <-w.bell:
			}
		}
		if w.buffered() >= w.limits.Batch {
			return ctx.Err() == nil
		}
		rest = w.limits.Linger
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.clock.After(rest):
		return true
	}
}

func (w *Writer) buffered() int {
	w.lock.Lock()
	defer w.lock.Unlock()
	return len(w.lines)
}

// farewell sends what is left, once.
func (w *Writer) farewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.limits.Farewell)
	defer cancel()
	for w.buffered() > 0 && ctx.Err() == nil {
		if err := w.send(ctx); err != nil {
			return
		}
	}
}

// send stores one batch. What InfluxDB will never take is dropped, and counted; of several points the batch is halved to
// find those.
func (w *Writer) send(ctx context.Context) error {
	w.lock.Lock()
	batch, from := w.lines[:min(len(w.lines), w.limits.Batch)], w.first
	w.lock.Unlock()
	if len(batch) == 0 {
		return nil
	}
	written, refused, err := w.deliver(ctx, batch)
	w.done(from, written+refused)
	metrics.SinkPoints.WithLabelValues(metrics.SinkInflux, metrics.PointWritten).Add(float64(written))
	metrics.SinkPoints.WithLabelValues(metrics.SinkInflux, metrics.PointRefused).Add(float64(refused))
	return err
}

// done takes away lines from a number on; some may have been cut meanwhile.
func (w *Writer) done(from uint64, n int) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if n -= int(w.first - from); n > 0 {
		w.cut(n)
	}
	w.tell()
}

// deliver stores lines, and says how many of them, from the first on, are over with.
func (w *Writer) deliver(ctx context.Context, lines []string) (written, refused int, err error) {
	attempt, cancel := context.WithTimeout(ctx, w.limits.Timeout)
	err = w.store.Write(attempt, lines)
	cancel()
	switch {
	case err == nil:
		return len(lines), 0, nil
	case !hopeless(err):
		metrics.SinkFailures.WithLabelValues(metrics.SinkInflux).Inc()
		return 0, 0, err
	case len(lines) == 1:
		logr.FromContextOrDiscard(ctx).WithName("influxdb").Error(err, "InfluxDB refuses a point; it is dropped")
		return 0, 1, nil
	}
	half := len(lines) / 2
	written, refused, err = w.deliver(ctx, lines[:half])
	if err != nil {
		return written, refused, err
	}
	more, bad, err := w.deliver(ctx, lines[half:])
	return written + more, refused + bad, err
}

// hopeless tells whether the same lines will be refused again. What is wrong with credentials or the database may be put
// right.
func hopeless(err error) bool {
	var status *StatusError
	if !errors.As(err, &status) {
		return false
	}
	switch status.Code {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// retryAfter is what a server asks for, in seconds.
func retryAfter(err error) time.Duration {
	var status *StatusError
	if !errors.As(err, &status) {
		return 0
	}
	seconds, err := strconv.Atoi(status.RetryAfter)
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
