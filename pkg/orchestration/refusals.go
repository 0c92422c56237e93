package orchestration

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// refusals are the actions of a round that the API server did not let the queue write. They are as they were, so whatever
// else the round decides holds.
type refusals struct {
	names map[string]bool
	last  error
}

// take returns the error, unless it is about one action alone.
func (r *refusals) take(name string, err error) error {
	if err == nil || !unwritable(err) {
		return err
	}
	if r.names == nil {
		r.names = map[string]bool{}
	}
	r.names[name], r.last = true, err
	return nil
}

// delay is when the next round comes: not before again where something was refused, for its time may long be over.
func (r *refusals) delay(ctx context.Context, next time.Duration) time.Duration {
	if r.last == nil {
		return next
	}
	log.FromContext(ctx).Error(r.last, "some actions cannot be written; they stay as they are", "actions", len(r.names))
	return max(next, again)
}
