package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// errDied means that an agent was killed while a container's state was being written.
var errDied = errors.New("the agent ended while the state was being written")

// source does the source's part.
func (k *Keeper) source(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (time.Duration, error) {
	held, err := k.sourceRecord(nc)
	if err != nil {
		return 0, err
	}
	if nc.Spec.Stage.GivenUp() {
		return 0, k.releaseSource(ctx, nc, held)
	}
	why, err := k.over(ctx, nc, Source)
	switch {
	case err != nil:
		return 0, err
	case why != "":
		return 0, k.discardSource(ctx, nc, held, why)
	case held != nil && held.Failure != "":
		return 0, k.failSource(ctx, nc, held, errors.New(held.Failure))
	case held == nil && (nc.Status.Source.Settled() || timeless(nc)): // what was stopped here is not stopped anew
		return 0, nil
	case held == nil:
		held = k.newRecord(nc, Source)
		err = k.take(ctx, nc, held)
	case len(held.Archives) < len(nc.Spec.Containers):
		err = errDied
	default:
		if err = k.undisturbed(ctx, held); permanent(ctx, err) {
			return k.disturbed(ctx, nc, held, err)
		}
	}
	if permanent(ctx, err) {
		return 0, k.failSource(ctx, nc, held, err)
	}
	if err != nil {
		return 0, err
	}
	return watchEvery, k.report(ctx, nc, Source, k.sourceSide(held, v1alpha1.CheckpointCheckpointed, ""))
}

// sourceRecord is what is held; nil: nothing, as far as is known. It remembers that a pod may be at work with the state: whoever deletes the NodeCheckpoint
// by force deletes that knowledge with it.
func (k *Keeper) sourceRecord(nc *v1alpha1.NodeCheckpoint) (*record, error) {
	held, err := k.records.load(nc.UID, Source)
	if errors.Is(err, errUnreadable) {
		k.Log.Error(err, "going on without it", "nodeCheckpoint", nc.Name)
		return nil, k.records.remove(k.newRecord(nc, Source))
	}
	if err != nil || held == nil || held.Restoring || nc.Spec.Stage != v1alpha1.StageRestore {
		return held, err
	}
	held.Restoring = true
	return held, k.records.save(held)
}

func (k *Keeper) newRecord(nc *v1alpha1.NodeCheckpoint, role Role) *record {
	return &record{Name: nc.Name, UID: nc.UID, Role: role, Pod: Pod{Namespace: nc.Spec.PodNamespace, Name: nc.Spec.PodName, UID: nc.Spec.PodUID}}
}

// sourceSide is what is told of what is held.
func (k *Keeper) sourceSide(held *record, state v1alpha1.CheckpointState, message string) v1alpha1.CheckpointSide {
	side := v1alpha1.CheckpointSide{State: state, Message: message}
	if held == nil || held.Began.IsZero() {
		return side
	}
	side.StoppedTime = ptr.To(metav1.NewMicroTime(held.Began))
	for _, a := range held.Archives {
		side.Archives = append(side.Archives, v1alpha1.CheckpointArchive{Container: a.Container, Bytes: a.Bytes, Digest: a.Digest})
		side.Bytes += a.Bytes
	}
	if state == v1alpha1.CheckpointCheckpointed {
		side.Address, side.Certificate = k.Address, k.identity.fingerprint
	}
	return side
}

// take pauses the containers and writes their state, all or none.
func (k *Keeper) take(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record) error {
	if can := k.discover(ctx); !can.Checkpoints {
		return fmt.Errorf("%w: %s", ErrUnsupported, can.Message)
	}
	ids, err := k.containers(ctx, nc)
	if err != nil {
		return err
	}
	size, err := k.estimate(ctx, nc, ids)
	if err != nil {
		return err
	}
	held.Began, held.Paused = k.Clock.Now(), ids
	if err := k.records.save(held); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		if err := k.Driver.Pause(ctx, ids[name]); err != nil {
			return err
		}
	}
	if err := k.report(ctx, nc, Source, k.sourceSide(held, v1alpha1.CheckpointWorking, "")); err != nil {
		return err
	}
	for _, c := range nc.Spec.Containers {
		if err := k.write(ctx, nc, held, c.Name, timeoutFor(size)); err != nil {
			return err
		}
	}
	if err := k.undisturbed(ctx, held); err != nil {
		return err
	}
	k.figures.taken.WithLabelValues(resultDone).Inc()
	k.figures.seconds.WithLabelValues("write").Observe(k.Clock.Now().Sub(held.Began).Seconds())
	return nil
}

// containers are the IDs of those whose state is wanted.
func (k *Keeper) containers(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (map[string]string, error) {
	running, err := k.Driver.Containers(ctx, nc.Spec.PodUID)
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, want := range nc.Spec.Containers {
		for _, c := range running {
			if c.Name == want.Name {
				ids[c.Name] = c.ID
			}
		}
		if ids[want.Name] == "" {
			return nil, fmt.Errorf("pod %s/%s (%s) has no running container %q on this node", nc.Spec.PodNamespace, nc.Spec.PodName, nc.Spec.PodUID, want.Name)
		}
	}
	return ids, nil
}

// estimate is about how large the largest archive will be; an error says that there is no room for them.
func (k *Keeper) estimate(ctx context.Context, nc *v1alpha1.NodeCheckpoint, ids map[string]string) (int64, error) {
	before, err := k.held()
	if err != nil {
		return 0, err
	}
	var largest int64
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		memory, written, err := k.Driver.Memory(ctx, nc.Spec.PodUID, ids[name])
		if err != nil {
			return 0, err
		}
		if err := k.most(nc).room(k.Dir, memory+written, before, copiesOut); err != nil {
			return 0, fmt.Errorf("container %s, by what it has in memory and has written: %w", name, err)
		}
		before, largest = before+memory+written, max(largest, memory+written)
	}
	return largest, nil
}

// The time that writing a state may take: 120 s, or 150 s for each GiB.
const (
	leastTimeout  = 120 * time.Second
	timeoutPerGiB = 150 * time.Second
)

func timeoutFor(size int64) time.Duration {
	return max(leastTimeout, time.Duration(float64(timeoutPerGiB)*float64(size)/(1<<30)))
}

// write has the state of one container written. It goes on to its end even if the process is told to end: a dump that is
// broken off may harm the container.
func (k *Keeper) write(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, container string, timeout time.Duration) error {
	path := ""
	err := k.meanwhile(ctx, nc, Source, k.sourceSide(held, v1alpha1.CheckpointWorking, ""), func() (err error) {
		path, err = k.Driver.Checkpoint(context.WithoutCancel(ctx), held.Pod, container, timeout)
		return err
	})
	if err != nil {
		return err
	}
	if filepath.Dir(path) != filepath.Clean(k.Archives) || !strings.HasPrefix(filepath.Base(path), "checkpoint-"+held.Pod.Name+"_") {
		return fmt.Errorf("%w: the kubelet names %s, which is no archive of the pod in %s", ErrCorrupt, path, k.Archives)
	}
	bytes, digest, err := own(path, k.most(nc).Archive)
	if err != nil {
		return err
	}
	if _, err := bases(path); err != nil {
		return err
	}
	k.figures.bytes.WithLabelValues("written").Add(float64(bytes))
	held.Archives = append(held.Archives, archive{Container: container, Path: path, Bytes: bytes, Digest: digest})
	return k.records.save(held)
}

// giveBack lets the containers go on and removes the archives.
func (k *Keeper) giveBack(ctx context.Context, held *record) error {
	if held == nil {
		return nil
	}
	var errs []error
	for _, id := range held.Paused {
		errs = append(errs, k.Driver.Resume(ctx, id))
	}
	return errors.Join(append(errs, k.removeArchives(held))...)
}

func (k *Keeper) removeArchives(held *record) error {
	var errs []error
	for _, a := range held.Archives {
		if err := os.Remove(a.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing an archive: %w", err))
		}
	}
	for name := range held.Paused {
		errs = append(errs, removeArchives(k.Archives, held.Pod, name, held.Began))
	}
	return errors.Join(errs...)
}

// failSource gives everything back, and says why. The record stays until the NodeCheckpoint is over, so that an archive is
// found that the kubelet finished late.
func (k *Keeper) failSource(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, why error) error {
	if held.Failure == "" {
		k.figures.taken.WithLabelValues(resultFailed).Inc()
		held.Failure = why.Error()
		if err := k.records.save(held); err != nil { // a full disk: go on without
			k.Log.Error(err, "noting that a checkpoint failed", "nodeCheckpoint", nc.Name)
		}
	}
	if err := k.giveBack(ctx, held); err != nil {
		return err
	}
	side := k.sourceSide(nil, v1alpha1.CheckpointFailed, held.Failure)
	return k.report(ctx, nc, Source, side)
}

func (k *Keeper) discardSource(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, why string) error {
	if held == nil && !nc.Status.Source.Settled() {
		var err error
		if held, err = k.unrecorded(ctx, nc); err != nil {
			return err
		}
	}
	if err := k.giveBack(ctx, held); err != nil {
		return err
	}
	if !nc.Status.Source.Settled() || nc.Status.Source.State == v1alpha1.CheckpointFailed && dismissed(nc) {
		if err := k.report(ctx, nc, Source, k.sourceSide(nil, v1alpha1.CheckpointDiscarded, "the containers run on: "+why)); err != nil {
			return err
		}
	}
	if held == nil {
		return nil
	}
	return k.records.remove(held)
}

// unrecorded is what may be held of a NodeCheckpoint whose record is lost: containers that stand still, and what was written of them.
func (k *Keeper) unrecorded(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (*record, error) {
	running, err := k.Driver.Containers(ctx, nc.Spec.PodUID)
	if err != nil {
		return nil, err
	}
	held := k.newRecord(nc, Source)
	held.Began, held.Paused = nc.CreationTimestamp.Time, map[string]string{}
	for _, c := range running {
		if !slices.Contains(nc.Spec.Containers, v1alpha1.CheckpointedContainer{Name: c.Name}) {
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

// releaseSource removes the archives. The containers stay paused: the pod goes, and until then there is another in its
// place.
func (k *Keeper) releaseSource(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record) error {
	if held != nil {
		if err := k.removeArchives(held); err != nil {
			return err
		}
	}
	if !nc.Status.Source.Settled() {
		if err := k.report(ctx, nc, Source, k.sourceSide(held, v1alpha1.CheckpointReleased, "")); err != nil {
			return err
		}
	}
	if held == nil {
		return nil
	}
	return k.records.remove(held)
}
