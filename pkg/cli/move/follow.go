package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Patience is how many looks in a row may fail before nobody looks any longer.
const Patience = 10

// Follower tells of a migration until it is over.
type Follower struct {
	Client client.Client
	Clock  clock.Clock
	Out    io.Writer
	// Every is how often it looks.
	Every time.Duration
	// Farewell is how long an aborted migration may take to end before it is left to itself.
	Farewell time.Duration
}

// Follow tells each change until the migration is over. When the context ends it aborts the migration, and waits for that: up
// to the cut-over everything is undone. The error is the context's cause then, whatever became of the migration, which is given in
// any case.
func (f Follower) Follow(ctx context.Context, key types.NamespacedName) (*v1alpha1.PodMigration, error) {
	shown := ""
	m, err := f.until(ctx, key, &shown)
	if err == nil || ctx.Err() == nil {
		return m, err
	}
	fmt.Fprintf(f.Out, "%s  %s: aborting\n", f.time(), interruption(ctx))
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.Farewell)
	defer cancel()
	if err := Abort(last, f.Client, key); err != nil {
		return m, err
	}
	after, err := f.until(last, key, &shown)
	switch {
	case last.Err() != nil:
		return after, fmt.Errorf("PodMigration %s is to be aborted, and has not ended within %s; it goes on by itself", key, f.Farewell)
	case err != nil:
		return after, err
	}
	return after, context.Cause(ctx)
}

// interruption is why the context has ended.
func interruption(ctx context.Context) string {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause.Error()
	}
	return "interrupted"
}

// until the migration is over, or the context.
func (f Follower) until(ctx context.Context, key types.NamespacedName, shown *string) (*v1alpha1.PodMigration, error) {
	var last *v1alpha1.PodMigration
	for failures := 0; ; {
		m, err := Get(ctx, f.Client, key)
		failures++
		switch {
		case ctx.Err() != nil:
			return last, ctx.Err()
		case err != nil && failures == Patience:
			return last, err
		case err != nil: // whoever serves may be away for a moment
		case m == nil:
			return last, fmt.Errorf("PodMigration %s was deleted", key)
		default:
			failures, last = 0, m
			f.tell(m, shown)
			if m.Status.Phase.Over() {
				return m, nil
			}
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-f.Clock.After(f.Every):
		}
	}
}

// tell what is new.
func (f Follower) tell(m *v1alpha1.PodMigration, shown *string) {
	if words := Words(m); words != *shown {
		*shown = words
		fmt.Fprintf(f.Out, "%s  %s\n", f.time(), words)
	}
}

func (f Follower) time() string { return f.Clock.Now().Format(time.TimeOnly) }

// Wait tells each change until the migration is over, or the context; it aborts nothing.
func (f Follower) Wait(ctx context.Context, key types.NamespacedName) (*v1alpha1.PodMigration, error) {
	shown := ""
	return f.until(ctx, key, &shown)
}
