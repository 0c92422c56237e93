package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// sweep gives back what is held of NodeCheckpoints that are no longer there.
func (k *Keeper) sweep(ctx context.Context) {
	all, err := k.records.all()
	if err != nil {
		k.Log.Error(err, "reading what is held")
	}
	for _, one := range all {
		if err := k.sweepRecord(ctx, one); err != nil && ctx.Err() == nil {
			k.Log.Error(err, "giving back what is held of a NodeCheckpoint; trying on", "nodeCheckpoint", one.Name)
		}
	}
}

// sweepNames removes images of checkpoints that no pod asks for.
func (k *Keeper) sweepNames(ctx context.Context) {
	if err := k.sweepImages(ctx); err != nil && ctx.Err() == nil {
		k.Log.V(1).Info("images of checkpoints were not looked at", "error", err.Error())
	}
}

// forgotten gives back what is held of a NodeCheckpoint that was deleted without its finalizer.
func (k *Keeper) forgotten(ctx context.Context, name string) error {
	all, err := k.records.all()
	errs := []error{err}
	for _, one := range all {
		if one.Name == name {
			errs = append(errs, k.sweepRecord(ctx, one))
		}
	}
	return errors.Join(errs...)
}

// sweepRecord believes only the API server that a NodeCheckpoint is gone.
func (k *Keeper) sweepRecord(ctx context.Context, one *record) error {
	if nc := k.get(one.Name); nc != nil && nc.UID == one.UID {
		k.queue.Add(one.Name)
		return nil
	}
	nc, err := k.API.Get(ctx, one.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("asking for the NodeCheckpoint: %w", err)
	}
	if err == nil && nc.UID == one.UID {
		return nil // the cache will tell
	}
	if one.Role == Source {
		if waits, err := k.besides(ctx, one); waits || err != nil {
			return err
		}
		err = k.giveBack(ctx, one)
	} else {
		err = k.letGo(ctx, one, true) // a pod may have been made of it
	}
	if err != nil {
		return err
	}
	k.Log.Info("gave back what was held of a NodeCheckpoint that is gone", "nodeCheckpoint", one.Name, "role", one.Role)
	return k.records.remove(one)
}

// orphaned is how long a NodeCheckpoint of which a pod may have been made must be gone before its source runs on: a controller
// that was about to make that pod has made it by then, or never will.
const orphaned = 2 * sweepEvery

// besides tells whether a source whose NodeCheckpoint is gone must stand still, as another pod may be at work with its state:
// another client has removed the finalizer. One that has ended itself holds nothing.
func (k *Keeper) besides(ctx context.Context, one *record) (bool, error) {
	running, err := k.Driver.Containers(ctx, one.Pod.UID)
	if err != nil || len(running) == 0 {
		return err != nil, err
	}
	copied, err := k.API.Copied(ctx, one.Pod.Namespace, one.Pod.UID)
	switch {
	case err != nil:
		return true, err
	case copied:
		k.Log.Info("a pod stands still whose NodeCheckpoint was deleted by force, as another is in its place: delete either of them",
			"nodeCheckpoint", one.Name, "pod", one.Pod.Namespace+"/"+one.Pod.Name)
		if one.Gone.IsZero() {
			return true, nil
		}
		one.Gone = time.Time{}
		return true, k.records.save(one)
	case !one.Restoring:
		return false, nil
	case one.Gone.IsZero():
		one.Gone = k.Clock.Now()
		return true, k.records.save(one)
	}
	return k.Clock.Since(one.Gone) < orphaned, nil
}

// sweepImages removes the names that a release left, when the pod is gone that they were left for, and every container that the runtime has recorded with
// one of them.
func (k *Keeper) sweepImages(ctx context.Context) error {
	names, err := k.Driver.Images(ctx, imagePrefix)
	if err != nil || len(names) == 0 {
		return err
	}
	used, err := k.API.Images(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		uid, _, _ := strings.Cut(strings.TrimPrefix(name, imagePrefix), ":")
		if held, err := k.records.load(types.UID(uid), Target); used[name] || err != nil || held != nil {
			continue
		}
		if recorded, err := k.Driver.Recorded(ctx, name); err != nil {
			return err
		} else if recorded {
			continue
		}
		if err := k.Driver.Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
