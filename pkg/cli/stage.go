package cli

import (
	"context"
	"errors"
	"sync"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/cli/observe"
	"github.com/mainspring-rt/mainspring/pkg/cli/view"
)

// errStopped is the cause of a context that the user ended from the live view.
var errStopped = errors.New("interrupted")

// stage performs something on a cluster while it is recorded and shown.
type stage struct {
	streams  Streams
	plain    bool // lines even on a terminal
	cluster  *cluster
	recorder *observe.Recorder
	frame    func() view.Frame
}

// perform runs the body once the recorder knows the cluster. It returns when the body has returned and everything else
// has ended: with the body's error, or with why the cluster or the view failed before.
func (s stage) perform(ctx context.Context, body func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var helpers sync.WaitGroup
	help := func(run func() error) {
		helpers.Go(func() {
			if err := run(); err != nil {
				cancel(err)
			}
		})
	}
	background, end := context.WithCancel(ctx)
	ready := make(chan struct{})
	help(func() error { return s.recorder.Run(background, ready) })
	help(func() error { return s.cluster.watch(background) })
	err := s.await(ctx, ready)
	if err == nil {
		help(func() error { return s.show(background, func() { cancel(errStopped) }) })
		err = body(ctx)
	}
	end()
	helpers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (s stage) await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s stage) show(ctx context.Context, stop func()) error {
	if s.streams.interactive() && !s.plain {
		return view.Live(ctx, s.streams.In, s.streams.Out, s.frame, stop)
	}
	view.Plain(ctx, s.streams.Out, clock.RealClock{}, s.frame)
	return nil
}
