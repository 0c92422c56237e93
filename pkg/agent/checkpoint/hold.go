package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// errHeld means that a pod stands still already, for another reason than the NodeCheckpoint that is to stop it. A copy may be at work with its state: nothing
// is taken of it, and it is not let go on.
var errHeld = errors.New("the pod stands still already")

// errOvertaken means that a NodeCheckpoint was discarded, or its time over, while the agent found out how to take the state: nothing is stopped for it.
var errOvertaken = errors.New("the NodeCheckpoint has changed")

// wanted tells whether a NodeCheckpoint is still what it was when its state was asked for, as far as is known: nothing has been stopped for it.
func (k *Keeper) wanted(nc *v1alpha1.NodeCheckpoint) bool {
	now := k.get(nc.Name)
	return now != nil && now.UID == nc.UID && !dismissed(now) && !timeless(now) && k.Clock.Now().Before(now.Spec.Expires.Time)
}

// begin puts the containers on record that are about to be stopped, where no other NodeCheckpoint has stopped any of them.
func (k *Keeper) begin(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, ids map[string]string) error {
	pod := string(held.Pod.UID)
	k.pods.LockKey(pod)
	defer func() { _ = k.pods.UnlockKey(pod) }()
	other, err := k.holder(held)
	switch {
	case !k.wanted(nc): // what the node can do takes some time to find out
		return errOvertaken
	case err != nil:
		return err
	case other != nil:
		return fmt.Errorf("%w, for NodeCheckpoint %s", errHeld, other.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		paused, err := k.Driver.Paused(ctx, ids[name])
		if err != nil {
			return err
		}
		if paused && !stopped(nc) {
			return fmt.Errorf("%w: container %s is paused, and for no NodeCheckpoint that this agent has on record", errHeld, name)
		}
	}
	held.Began, held.Paused = began(nc, k.Clock.Now()), ids
	return k.records.save(held)
}

// stopped tells whether this node has told that it has stopped the containers, and not yet that they run on.
func stopped(nc *v1alpha1.NodeCheckpoint) bool {
	return nc.Status.Source != nil && (nc.Status.Source.StoppedTime != nil || nc.Status.Source.Pending)
}

// began is since when this node has told that the containers are stopped, whatever has become of its record: what was written since then is of that
// NodeCheckpoint. Where it has told nothing it is the other time.
func began(nc *v1alpha1.NodeCheckpoint, otherwise time.Time) time.Time {
	if side := nc.Status.Source; side != nil && side.StoppedTime != nil {
		return side.StoppedTime.Time
	}
	return otherwise
}

// holder is another record for which the pod of one stands still; nil: there is none, as far as records can be read.
func (k *Keeper) holder(one *record) (*record, error) {
	all, err := k.records.all()
	for _, other := range all {
		if other.UID != one.UID && other.Pod.UID == one.Pod.UID && other.stops() {
			return other, nil
		}
	}
	return nil, err
}

// whatNow says, of a source of which nothing is held any longer for this NodeCheckpoint, what its containers do.
func (k *Keeper) whatNow(nc *v1alpha1.NodeCheckpoint, why string) string {
	if other, _ := k.holder(k.newRecord(nc, Source)); other != nil {
		return "the containers stand still for NodeCheckpoint " + other.Name + ": " + why
	}
	return "the containers run on: " + why
}

// giveBack lets the containers go on, unless they stand still for another NodeCheckpoint, and removes the archives.
func (k *Keeper) giveBack(ctx context.Context, held *record) error {
	if held == nil {
		return nil
	}
	pod := string(held.Pod.UID)
	k.pods.LockKey(pod)
	defer func() { _ = k.pods.UnlockKey(pod) }()
	other, err := k.holder(held)
	if err != nil { // it may be of any NodeCheckpoint: no pod stands still for ever for a file that the agent cannot read
		k.Log.Error(err, "looking for another NodeCheckpoint that a pod stands still for; going on without what cannot be read", "nodeCheckpoint", held.Name)
	}
	if other != nil {
		k.Log.Info("the containers of a pod are not resumed, as they stand still for another NodeCheckpoint", "nodeCheckpoint", held.Name, "other", other.Name)
		return k.removeArchives(held, other.Began)
	}
	return errors.Join(k.letRun(ctx, held), k.removeArchives(held, time.Time{}))
}

// letRun resumes what was stopped for a record, also what has begun anew in the place of one that ended and is not on record: it was stopped before that.
func (k *Keeper) letRun(ctx context.Context, held *record) error {
	if len(held.Paused) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Values(held.Paused))
	running, err := k.Driver.Containers(ctx, held.Pod.UID)
	for _, c := range running {
		if was, ours := held.Paused[c.Name]; ours && was != c.ID {
			ids = append(ids, c.ID)
		}
	}
	errs := []error{err}
	for _, id := range ids {
		errs = append(errs, k.Driver.Resume(ctx, id))
	}
	return errors.Join(errs...)
}

// resumedAll notes that nothing is stopped for a record any longer that stays: another NodeCheckpoint may stop the pod.
func (k *Keeper) resumedAll(held *record) {
	if held.Resumed {
		return
	}
	held.Resumed = true
	if err := k.records.save(held); err != nil { // a full disk: go on without
		k.Log.Error(err, "noting that containers were resumed", "nodeCheckpoint", held.Name)
	}
}

// removeArchives removes what was written for a record, up to when another one began.
func (k *Keeper) removeArchives(held *record, before time.Time) error {
	var errs []error
	for _, a := range held.Archives {
		if err := os.Remove(a.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing an archive: %w", err))
		}
	}
	if held.Began.IsZero() { // nothing was
		return errors.Join(errs...)
	}
	for _, name := range slices.AppendSeq(slices.Clone(held.Containers), maps.Keys(held.Paused)) {
		errs = append(errs, removeArchives(k.Archives, held.Pod, name, held.Began, before))
	}
	return errors.Join(errs...)
}

// unrecorded is what may be held of a NodeCheckpoint whose record is lost: containers that stand still, and what was written of all that were to, as one may
// have ended since.
func (k *Keeper) unrecorded(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (*record, error) {
	running, err := k.Driver.Containers(ctx, nc.Spec.PodUID)
	if err != nil {
		return nil, err
	}
	held := k.newRecord(nc, Source)
	held.Began, held.Paused = began(nc, nc.CreationTimestamp.Time), map[string]string{}
	for _, c := range running {
		if !slices.Contains(held.Containers, c.Name) {
			continue
		}
		paused, err := k.Driver.Paused(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		if paused {
			held.Paused[c.Name] = c.ID
		}
	}
	return held, nil
}
