// Package agent is the half of the node agent that talks to the API server: it makes the fast path's table of the
// RTNode of its node, and RTNode.status, Events and metrics of the fast path's report. It has no privileges on
// the machine: budgets, cpusets and policies are written by the fast path alone (pkg/agent/fastpath), which goes
// on with its last table while this half, or the API server, is away.
//
// services.go lists what runs. Services share immutable values behind atomic pointers (World, Applied,
// Counted) and nothing else; each owns its goroutines and ends with its context.
package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
)

// Service is a part of the agent.
type Service interface {
	// Name for logs and errors.
	Name() string
}

// Initializer is a Service that must have done something before any other runs.
type Initializer interface {
	Service
	Init(ctx context.Context) error
}

// Runner is a Service that works until its context ends. An error ends the agent; what can be tried again
// is tried again instead.
type Runner interface {
	Service
	Run(ctx context.Context) error
}

// Shutdowner is a Service with something to finish after all have stopped.
type Shutdowner interface {
	Service
	Shutdown(ctx context.Context) error
}

// shutdownTimeout bounds what services may take to finish.
const shutdownTimeout = 10 * time.Second

// RunServices initialises services in their order, runs them until ctx ends or one fails, and shuts them
// down in reverse order. It returns when none runs any more: nil after ctx ended.
func RunServices(ctx context.Context, services []Service) error {
	for _, s := range services {
		if i, ok := s.(Initializer); ok {
			if err := i.Init(ctx); err != nil {
				return fmt.Errorf("starting %s: %w", s.Name(), err)
			}
		}
	}
	group, running := errgroup.WithContext(ctx)
	for _, s := range services {
		if r, ok := s.(Runner); ok {
			group.Go(func() error {
				err := r.Run(running)
				if err == nil || running.Err() != nil && errors.Is(err, context.Canceled) {
					return nil
				}
				return fmt.Errorf("running %s: %w", s.Name(), err)
			})
		}
	}
	<-running.Done()
	err := group.Wait()
	return errors.Join(err, shutdown(services))
}

// every calls f at an interval until ctx ends; a call that takes longer than that is not made up for.
func every(ctx context.Context, c clock.WithTicker, interval time.Duration, f func(context.Context)) {
	ticker := c.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			f(ctx)
		}
	}
}

func shutdown(services []Service) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout) // the agent's own context has ended
	defer cancel()
	var errs []error
	for _, s := range slices.Backward(services) {
		if d, ok := s.(Shutdowner); ok {
			if err := d.Shutdown(ctx); err != nil {
				errs = append(errs, fmt.Errorf("stopping %s: %w", s.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}
