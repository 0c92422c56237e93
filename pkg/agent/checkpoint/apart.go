package checkpoint

import (
	"context"
	"errors"
	"sync"
	"time"
)

// eachAtOnce is how many states are written at once, and how many are brought: each may take minutes. The goroutine that looks
// at NodeCheckpoints does not wait for them: it sees a pod that is to run on, or whose container another client has resumed.
// Those that are written and those that are brought do not wait for each other: the source of one that is brought stands still.
const eachAtOnce = 4

// errand is what takes long: it says when to look again.
type errand func(ctx context.Context) (time.Duration, error)

// apart has an errand done, for a role.
type apart func(role Role, do errand) (time.Duration, error)

// errApart means that an errand is done apart, and that the NodeCheckpoint is worked on until it is.
var errApart = errors.New("it is done apart")

// errands are how many are done, and which NodeCheckpoints wait until one is over.
type errands struct {
	mu    sync.Mutex
	busy  map[Role]int
	waits map[Role]map[string]bool
}

func newErrands() errands {
	return errands{busy: map[Role]int{}, waits: map[Role]map[string]bool{Source: {}, Target: {}}}
}

// enter tells whether another one may begin; if not, its NodeCheckpoint is named when one has ended.
func (e *errands) enter(role Role, name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy[role] >= eachAtOnce {
		e.waits[role][name] = true
		return false
	}
	e.busy[role]++
	return true
}

// leave names those that have waited.
func (e *errands) leave(role Role) map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy[role]--
	waited := e.waits[role]
	e.waits[role] = map[string]bool{}
	return waited
}

// next looks at the next NodeCheckpoint of the queue. What takes long goes to a goroutine of the owner. The queue gives the
// name to no other goroutine until that is done. A NodeCheckpoint that waits to be written or brought is in no goroutine's hands
// meanwhile, so that next sees its end.
func (k *Keeper) next(ctx context.Context, own func(func() error)) bool {
	name, over := k.queue.Get()
	if over {
		return false
	}
	after, err := k.reconcile(ctx, name, func(role Role, do errand) (time.Duration, error) {
		if !k.errands.enter(role, name) {
			return 0, nil
		}
		own(func() error {
			after, err := do(ctx)
			k.settle(ctx, name, after, err)
			for waits := range k.errands.leave(role) {
				k.queue.Add(waits)
			}
			return nil
		})
		return 0, errApart
	})
	if !errors.Is(err, errApart) {
		k.settle(ctx, name, after, err)
	}
	return true
}

// settle has a NodeCheckpoint looked at again.
func (k *Keeper) settle(ctx context.Context, name string, after time.Duration, err error) {
	defer k.queue.Done(name)
	switch {
	case err != nil && ctx.Err() == nil:
		k.Log.Error(err, "looking after a NodeCheckpoint; trying on", "nodeCheckpoint", name)
		k.queue.AddRateLimited(name)
	case after > 0:
		k.queue.Forget(name)
		k.queue.AddAfter(name, after)
	default:
		k.queue.Forget(name)
	}
}

// within runs f, which ends when the NodeCheckpoint is no longer wanted.
func (k *Keeper) within(ctx context.Context, name string, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.mu.Lock()
	k.running[name] = cancel
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.running, name)
		k.mu.Unlock()
	}()
	if nc := k.get(name); nc == nil || dismissed(nc) { // it changed just before
		return context.Canceled
	}
	return f(ctx)
}
