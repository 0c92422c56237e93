package node

import (
	"context"

	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Alone is alone.
func Alone(ctx context.Context, s Settings) (*sole.Lock, error) { return s.alone(ctx) }

// Keep is keep.
func Keep(ctx context.Context, s Settings, machine host.Host, cores []int) (*sole.Lock, error) {
	return s.keep(ctx, machine, cores)
}

// Steps are those of a start.
type Steps = steps

// Begin is begin.
func Begin(s Settings) *Steps { return s.begin() }

// Next is next.
func (s *steps) Next(what string) { s.next(what) }

// Look is look.
func (s *steps) Look() { s.look() }

// Done is done.
func (s *steps) Done() { s.done() }
