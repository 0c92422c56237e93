package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// imagePrefix begins the names of images that are made of checkpoints. No registry has the name.
const imagePrefix = "mainspring.local/checkpoint/"

func imageOf(uid types.UID, container string) string {
	return imagePrefix + string(uid) + ":" + container
}

// progressEvery is the least time between two reports of a transfer's progress.
const progressEvery = time.Second

// target does the target's part.
func (k *Keeper) target(ctx context.Context, nc *v1alpha1.NodeCheckpoint, hand apart) (time.Duration, error) {
	held, err := k.targetRecord(ctx, nc)
	if err != nil {
		return 0, err
	}
	why, err := k.over(ctx, nc, Target, held)
	switch {
	case err != nil:
		return 0, err
	case nc.Spec.Stage == v1alpha1.StageRelease, why != "" && nc.Spec.Stage == v1alpha1.StageHandOver: // a pod may have been made of it
		return 0, k.releaseTarget(ctx, nc, held)
	case why != "":
		return 0, k.discardTarget(ctx, nc, held, why)
	case held == nil && nc.Status.Target.Settled():
		return 0, nil
	case held != nil && held.Failure != "":
		return 0, k.failTarget(ctx, nc, held, errors.New(held.Failure))
	case timeless(nc):
		return k.keep(ctx, nc, held)
	case nc.Spec.Stage == v1alpha1.StageCheckpoint || nc.Status.Source == nil || nc.Status.Source.State != v1alpha1.CheckpointCheckpointed:
		return watchEvery, k.report(ctx, nc, Target, k.targetSide(held, v1alpha1.CheckpointWorking, ""))
	}
	return k.fetch(ctx, nc, held, hand)
}

// fetch has what is not here yet brought apart, and looks for what is made of it once all is.
func (k *Keeper) fetch(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, hand apart) (time.Duration, error) {
	if held == nil {
		held = k.newRecord(nc, Target)
	}
	if !missing(nc, held) {
		return k.await(ctx, nc, held)
	}
	return hand(Target, func(ctx context.Context) (time.Duration, error) { return k.receive(ctx, nc, held) })
}

// missing tells whether archives of the source are not here yet.
func missing(nc *v1alpha1.NodeCheckpoint, held *record) bool {
	return slices.ContainsFunc(nc.Status.Source.Archives, func(want v1alpha1.CheckpointArchive) bool {
		found := held.archive(want.Container)
		return found == nil || !found.Imported
	})
}

// receive brings what the source has, and then looks for what is made of it.
func (k *Keeper) receive(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record) (time.Duration, error) {
	if err := k.bringAll(ctx, nc, held); permanent(ctx, err) {
		return 0, k.failTarget(ctx, nc, held, err)
	} else if err != nil {
		return 0, ignoreCanceled(err) // what ended it has the NodeCheckpoint looked at again
	}
	return k.await(ctx, nc, held)
}

// errNothing means that a pod is to be made of a state that is not here.
var errNothing = errors.New("the pod's state is not on this node")

// keep holds the state for the pod that is made of it, whatever the source's agent says meanwhile.
func (k *Keeper) keep(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record) (time.Duration, error) {
	if held == nil {
		held = k.newRecord(nc, Target)
	}
	for _, c := range nc.Spec.Containers {
		if a := held.archive(c.Name); a == nil || !a.Imported {
			return 0, k.failTarget(ctx, nc, held, errNothing)
		}
	}
	return k.await(ctx, nc, held)
}

// await tells which containers the runtime has made of what is here.
func (k *Keeper) await(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record) (time.Duration, error) {
	all, err := k.lookForRestored(ctx, held)
	if err != nil {
		return 0, err
	}
	again := restoredEvery
	if all {
		again = watchEvery
	}
	return again, k.report(ctx, nc, Target, k.targetSide(held, v1alpha1.CheckpointTransferred, ""))
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (k *Keeper) targetSide(held *record, state v1alpha1.CheckpointState, message string) v1alpha1.CheckpointSide {
	side := v1alpha1.CheckpointSide{State: state, Message: message}
	if !side.Settled() {
		side.Certificate = k.identity.fingerprint
	}
	if held == nil {
		return side
	}
	for _, a := range held.Archives {
		if a.Imported {
			side.Archives = append(side.Archives, v1alpha1.CheckpointArchive{
				Container: a.Container, Bytes: a.Bytes, Digest: a.Digest, Image: a.Image, Restored: a.Restored,
			})
			side.Bytes += a.Bytes
		}
	}
	return side
}

// bringAll brings every archive that is not here.
func (k *Keeper) bringAll(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record) error {
	// The source learns from this side which agent to give them.
	if err := k.report(ctx, nc, Target, k.targetSide(held, v1alpha1.CheckpointWorking, "")); err != nil {
		return err
	}
	if can := k.discover(ctx); !can.Restores {
		return fmt.Errorf("%w: %s", ErrUnsupported, can.Message)
	}
	began := k.Clock.Now()
	err := k.within(ctx, nc.Name, func(ctx context.Context) error {
		for _, want := range nc.Status.Source.Archives {
			if found := held.archive(want.Container); found != nil && found.Imported {
				continue
			}
			if err := k.bring(ctx, nc, held, want); err != nil {
				return fmt.Errorf("container %s: %w", want.Container, err)
			}
		}
		return nil
	})
	if err == nil {
		k.figures.brought.WithLabelValues(resultDone).Inc()
		k.figures.seconds.WithLabelValues("transfer").Observe(k.Clock.Now().Sub(began).Seconds())
	}
	return err
}

// bring fetches one archive and has the runtime take it.
func (k *Keeper) bring(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, want v1alpha1.CheckpointArchive) error {
	path := filepath.Join(k.records.fetched(nc.UID), filepath.Base(want.Container)+".tar")
	if err := k.expect(nc, held, want); err != nil {
		return err
	}
	defer k.promises.release(nc.UID, "")
	err := fetch{
		peer: k.peer(nc, want.Container), path: path, bytes: want.Bytes, digest: want.Digest, progress: k.progress(ctx, nc, held), clock: k.Clock,
	}.run(ctx)
	if err != nil {
		return err
	}
	k.figures.bytes.WithLabelValues("received").Add(float64(want.Bytes))
	a := held.archive(want.Container)
	if a.Bases, err = bases(path); err != nil {
		return err
	}
	if has, err := k.Driver.Has(ctx, cmp.Or(a.Bases...)); err != nil || !has { // it goes by the reference: the name may mean another image here
		return errors.Join(err, fmt.Errorf("%w: this node has no image %s, of which the container was made", ErrUnsupported, strings.Join(a.Bases, ", ")))
	}
	if err := k.records.save(held); err != nil {
		return err
	}
	err = k.meanwhile(ctx, nc, Target, k.targetSide(held, v1alpha1.CheckpointWorking, ""), func() error {
		taking, cancel := context.WithTimeout(ctx, timeoutFor(a.Bytes))
		defer cancel()
		return k.Driver.Import(taking, containerd.Image{Name: a.Image, Container: a.Container, Archive: path, Bytes: a.Bytes, Digest: a.Digest})
	})
	if err != nil {
		return err
	}
	a.Imported = true
	if err := k.records.save(held); err != nil {
		return err
	}
	return os.Remove(path)
}

// peer is the source's agent, as it tells of itself now: one that was started anew has another key, and maybe another address.
func (k *Keeper) peer(nc *v1alpha1.NodeCheckpoint, container string) func() (string, *http.Client) {
	return func() (string, *http.Client) {
		source := nc.Status.Source
		if now := k.get(nc.Name); now != nil && now.UID == nc.UID && now.Status.Source != nil {
			source = now.Status.Source
		}
		return "https://" + source.Address + archivePath(nc.UID, container), clientFor(k.identity, source.Certificate)
	}
}

// progress reports how much has come, now and then.
func (k *Keeper) progress(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record) func(int64) {
	last := k.Clock.Now()
	return func(bytes int64) {
		now := k.Clock.Now()
		if now.Sub(last) < progressEvery {
			return
		}
		last = now
		side := k.targetSide(held, v1alpha1.CheckpointWorking, "")
		side.Bytes, side.ProgressTime = side.Bytes+bytes, ptr.To(metav1.NewMicroTime(now))
		if err := k.report(ctx, nc, Target, side); err != nil {
			k.Log.V(1).Info("the progress of a transfer was not written", "error", err.Error())
		}
	}
}

// lookForRestored notes which containers the runtime has made of the archives, and tells whether all are.
func (k *Keeper) lookForRestored(ctx context.Context, held *record) (bool, error) {
	all, found := true, 0
	var running []containerd.Container
	for i := range held.Archives {
		a := &held.Archives[i]
		if a.Restored != "" {
			continue
		}
		if running == nil {
			var err error
			if running, err = k.Driver.Restored(ctx); err != nil {
				return false, err
			}
		}
		for _, c := range running {
			if c.RestoredFrom == a.Image {
				a.Restored = c.ID
				found++
			}
		}
		all = all && a.Restored != ""
	}
	if found == 0 {
		return all, nil
	}
	if err := k.records.save(held); err != nil { // a full disk: it is told all the same, and found again
		k.Log.Error(err, "noting what was restored", "nodeCheckpoint", held.Name)
		return all, nil
	}
	k.figures.restored.Add(float64(found))
	return all, nil
}

// letGo removes what was fetched, and takes the images away; where retire says so, their names stay and mean the images
// that the containers were made of.
func (k *Keeper) letGo(ctx context.Context, held *record, retire bool) error {
	if held == nil {
		return nil
	}
	errs := []error{os.RemoveAll(k.records.fetched(held.UID))}
	for _, a := range held.Archives {
		if retire {
			errs = append(errs, k.Driver.Retire(ctx, a.Image, a.Bases...))
		} else {
			errs = append(errs, k.Driver.Remove(ctx, a.Image))
		}
	}
	return errors.Join(errs...)
}

func (k *Keeper) failTarget(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, why error) error {
	if held.Failure == "" {
		k.figures.brought.WithLabelValues(resultFailed).Inc()
		held.Failure = why.Error()
		if err := k.records.save(held); err != nil { // a full disk: go on without
			k.Log.Error(err, "noting that a transfer failed", "nodeCheckpoint", nc.Name)
		}
	}
	if err := k.letGo(ctx, held, false); err != nil {
		return err
	}
	return k.report(ctx, nc, Target, k.targetSide(nil, v1alpha1.CheckpointFailed, held.Failure))
}

func (k *Keeper) discardTarget(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, why string) error {
	if err := k.letGo(ctx, held, false); err != nil {
		return err
	}
	if !nc.Status.Target.Settled() || nc.Status.Target.State == v1alpha1.CheckpointFailed && dismissed(nc) {
		if err := k.report(ctx, nc, Target, k.targetSide(nil, v1alpha1.CheckpointDiscarded, why)); err != nil {
			return err
		}
	}
	if held == nil {
		return nil
	}
	return k.records.remove(held)
}

// releaseTarget takes the state away from the images. Their names stay for the pod that was made of them.
func (k *Keeper) releaseTarget(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record) error {
	if held != nil {
		if _, err := k.lookForRestored(ctx, held); err != nil {
			return err
		}
	}
	if err := k.letGo(ctx, held, true); err != nil {
		return err
	}
	if !nc.Status.Target.Settled() {
		if err := k.report(ctx, nc, Target, k.targetSide(held, v1alpha1.CheckpointReleased, "")); err != nil {
			return err
		}
	}
	if held == nil {
		return nil
	}
	return k.records.remove(held)
}
