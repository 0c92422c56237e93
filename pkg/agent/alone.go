package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
)

// alone sees to it that one agent at a time uses a state directory: two would report, count and serve the
// kubelet in turns, each undoing what the other did.
type alone struct {
	dir   string
	clock clock.WithTicker
	log   logr.Logger
	lock  *sole.Lock
}

// Name implements Service.
func (a *alone) Name() string { return "lock" }

// Init waits for the lock, which ends with the process that has it.
func (a *alone) Init(ctx context.Context) (err error) {
	a.lock, err = sole.Take(ctx, a.dir, "lock", sole.Waiting{Clock: a.clock, Begins: func(holder string) {
		a.log.Info("another agent uses this state directory; waiting for it to end", "dir", a.dir, "holder", holder)
	}})
	var held *sole.HeldError
	if errors.As(err, &held) {
		return fmt.Errorf("another agent uses --state-dir %s of this node; want one agent on a node, or the other to end: %w", a.dir, err)
	}
	return err
}

// Shutdown lets the next one in.
func (a *alone) Shutdown(context.Context) error {
	if a.lock == nil {
		return nil
	}
	return a.lock.Release()
}
