package node

import (
	"context"

	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
)

// Alone is alone.
func Alone(ctx context.Context, s Settings) (*sole.Lock, error) { return s.alone(ctx) }
