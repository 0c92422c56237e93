package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
func (k *Keeper) source(ctx context.Context, nc *v1alpha1.NodeCheckpoint, hand apart) (time.Duration, error) {
	held, err := k.sourceRecord(ctx, nc)
	if err != nil {
		return 0, err
	}
	if nc.Spec.Stage.GivenUp() {
		if err := k.releaseSource(ctx, nc, held); err != nil {
			return 0, err
		}
		return k.keepStill(ctx, nc)
	}
	why, err := k.over(ctx, nc, Source, held)
	switch {
	case err != nil:
		return 0, err
	case why != "":
		return 0, k.discardSource(ctx, nc, held, why)
	case held != nil && held.Failure != "":
		return 0, k.failSource(ctx, nc, held, errors.New(held.Failure))
	case held != nil && pending(nc): // it was told, and may not have come to disk
		return 0, k.failSource(ctx, nc, held, errors.New(nc.Status.Source.Message))
	case held == nil && (nc.Status.Source.Decided() || timeless(nc)): // what was stopped here is not stopped anew
		return 0, nil
	case held == nil:
		return hand(Source, func(ctx context.Context) (time.Duration, error) {
			held := k.newRecord(nc, Source)
			return k.taken(ctx, nc, held, k.take(ctx, nc, held))
		})
	case len(held.Archives) < len(nc.Spec.Containers):
		err = errDied
	default:
		return k.watch(ctx, nc, held)
	}
	return k.taken(ctx, nc, held, err)
}

// taken tells what has come of a source's part.
func (k *Keeper) taken(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, err error) (time.Duration, error) {
	switch {
	case errors.Is(err, errOvertaken):
		return lookAgain, nil
	case permanent(ctx, err):
		return 0, k.failSource(ctx, nc, held, err)
	case err != nil:
		return 0, err
	}
	err = k.report(ctx, nc, Source, k.sourceSide(held, v1alpha1.CheckpointCheckpointed, ""))
	return k.soonest(nc), err // after what may have taken long
}

// soonest is when to look again, not later than when its time is over: where no controller is there, only this agent lets the
// source run on before its liveness probe ends it.
func (k *Keeper) soonest(nc *v1alpha1.NodeCheckpoint) time.Duration {
	if timeless(nc) {
		return watchEvery
	}
	return max(lookAgain, min(watchEvery, nc.Spec.Expires.Sub(k.Clock.Now())))
}

// sourceRecord is what is held; nil: nothing, as far as is known. It remembers that a pod may be at work with the state: a user
// who deletes the NodeCheckpoint by force deletes that knowledge with it. Of a record that the agent cannot read it knows that
// containers may have been stopped. Once their archives were complete a copy may be on the way that this agent has not heard of
// yet, so that it resumes nothing.
func (k *Keeper) sourceRecord(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (*record, error) {
	held, err := k.records.load(nc.UID, Source)
	if errors.Is(err, errUnreadable) {
		k.Log.Error(err, "going on without it", "nodeCheckpoint", nc.Name)
		if !timeless(nc) && !nc.Status.Source.Settled() && !complete(nc) {
			return k.unrecorded(ctx, nc)
		}
		return nil, k.records.remove(k.newRecord(nc, Source))
	}
	if err == nil && held == nil && pending(nc) {
		return k.unrecorded(ctx, nc)
	}
	if err != nil || held == nil {
		return held, err
	}
	if nc.Spec.Stage == v1alpha1.StageRestore && !held.Restoring {
		held.Restoring, held.unsaved = true, true
	}
	if told := nc.Status.Source; complete(nc) && told.Disturbance != "" {
		note(held, told.Disturbance, told.Message) // it may not have come to disk
	}
	return held, nil
}

// complete tells whether this node has told that it has all archives.
func complete(nc *v1alpha1.NodeCheckpoint) bool {
	return nc.Status.Source != nil && nc.Status.Source.State == v1alpha1.CheckpointCheckpointed
}

func (k *Keeper) newRecord(nc *v1alpha1.NodeCheckpoint, role Role) *record {
	one := &record{Name: nc.Name, UID: nc.UID, Role: role, Pod: Pod{Namespace: nc.Spec.PodNamespace, Name: nc.Spec.PodName, UID: nc.Spec.PodUID}}
	if role == Source {
		for _, c := range nc.Spec.Containers {
			one.Containers = append(one.Containers, c.Name)
		}
	}
	return one
}

// sourceSide is what is told of what is held.
func (k *Keeper) sourceSide(held *record, state v1alpha1.CheckpointState, message string) v1alpha1.CheckpointSide {
	side := v1alpha1.CheckpointSide{State: state, Message: message}
	if held == nil || held.Began.IsZero() {
		return side
	}
	side.Disturbance, side.Message = held.Disturbance, cmp.Or(message, held.Disturbed)
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
	defer k.promises.release(nc.UID, "")
	if err := k.begin(ctx, nc, held, ids); err != nil {
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
	if err := k.records.save(held); err != nil {
		return err
	}
	k.promises.release(nc.UID, container) // it is held
	return nil
}

// failSource gives everything back, and says why. The record stays until the NodeCheckpoint is over, so that an archive is
// found that the kubelet finished late.
func (k *Keeper) failSource(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, why error) error {
	if held.Failure == "" {
		k.figures.taken.WithLabelValues(resultFailed).Inc()
		held.Failure = why.Error()
		k.blame(ctx, held, why)
		if err := k.records.save(held); err != nil { // a full disk: go on without
			k.Log.Error(err, "noting that a checkpoint failed", "nodeCheckpoint", nc.Name)
		}
	}
	if err := k.giveBack(ctx, held); err != nil {
		return err
	}
	k.resumedAll(held)
	side := k.sourceSide(nil, v1alpha1.CheckpointFailed, held.Failure)
	side.Disturbance = disturbance(nc, held)
	return k.report(ctx, nc, Source, side)
}

func (k *Keeper) discardSource(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, why string) error {
	if held == nil && !nc.Status.Source.Settled() && stopped(nc) {
		var err error
		if held, err = k.unrecorded(ctx, nc); err != nil {
			return err
		}
	}
	if err := k.giveBack(ctx, held); err != nil {
		return err
	}
	if !nc.Status.Source.Settled() || nc.Status.Source.State == v1alpha1.CheckpointFailed && dismissed(nc) {
		side := k.sourceSide(nil, v1alpha1.CheckpointDiscarded, k.whatNow(nc, why))
		if side.Disturbance = disturbance(nc, held); side.Disturbance == v1alpha1.CheckpointEnded {
			side.Message = "what has ended begins anew: " + why
		}
		if err := k.report(ctx, nc, Source, side); err != nil {
			return err
		}
	}
	if held == nil {
		return nil
	}
	return k.records.remove(held)
}

// releaseSource removes the archives. The containers stay paused: the pod goes, and until then there is another in its
// place.
func (k *Keeper) releaseSource(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record) error {
	if held != nil {
		if err := k.removeArchives(held, time.Time{}); err != nil {
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
