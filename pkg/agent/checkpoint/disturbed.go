package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mainspring-rt/mainspring/pkg/agent/checkpoint/containerd"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// disturbedError is how a container did not stay paused.
type disturbedError struct {
	container string
	how       v1alpha1.CheckpointDisturbance
}

func (e *disturbedError) Error() string {
	if e.how == v1alpha1.CheckpointResumed {
		return fmt.Sprintf("container %s: somebody else resumed a container that was to stay paused", e.container)
	}
	return fmt.Sprintf("container %s: it was to stay paused, and has ended (a liveness probe ends it, after its failureThreshold), with what it had in memory", e.container)
}

// undisturbed is nil while the containers are paused, else a disturbedError. It pauses again a container that another client
// resumed. Of several one that has ended counts.
func (k *Keeper) undisturbed(ctx context.Context, held *record) error {
	var found *disturbedError
	for _, name := range slices.Sorted(maps.Keys(held.Paused)) {
		how, err := k.hold(ctx, held.Paused[name])
		if err != nil {
			k.Log.Error(err, "asking whether a container is still paused; asking again", "container", name)
			continue // containerd is being started anew: the containers stay as they are
		}
		if how != "" && (found == nil || found.how == v1alpha1.CheckpointResumed && how == v1alpha1.CheckpointEnded) {
			found = &disturbedError{name, how}
		}
	}
	if found == nil {
		return nil
	}
	return found
}

// hold says how a container did not stay paused; empty: it did. Only one that can be paused again has not ended: it may be about to.
func (k *Keeper) hold(ctx context.Context, id string) (v1alpha1.CheckpointDisturbance, error) {
	how := v1alpha1.CheckpointDisturbance("")
	for range 2 {
		if paused, err := k.Driver.Paused(ctx, id); paused || err != nil {
			return how, err
		}
		if runs, err := k.Driver.Runs(ctx, id); !runs || err != nil {
			return v1alpha1.CheckpointEnded, err
		}
		how = v1alpha1.CheckpointResumed
		if err := k.Driver.Pause(ctx, id); err != nil {
			k.Log.Error(err, "pausing a container again that somebody else resumed; trying again", "id", id)
		}
	}
	return how, nil
}

// watch looks whether the source stands still, and tells how it did not. What has begun anew is stopped: another pod may be at work with the state, or
// is to be, and that state is nowhere else. It is looked for at short intervals until it is there. All that comes first: the disk may be full.
func (k *Keeper) watch(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record) (time.Duration, error) {
	defer k.keepRecord(held)
	var found *disturbedError
	if err := k.undisturbed(ctx, held); permanent(ctx, err) && errors.As(err, &found) {
		if found.how == v1alpha1.CheckpointResumed && held.Disturbance == "" {
			if failed, err := k.resumed(ctx, nc, held, found); failed || err != nil {
				return 0, err
			}
		}
		note(held, found.how, found.Error())
	}
	again, stopping := k.soonest(nc), error(nil)
	if held.Disturbance == v1alpha1.CheckpointEnded {
		var stopped bool
		if stopped, stopping = k.stopAnew(ctx, held); !stopped {
			again = min(again, restoredEvery)
		}
	}
	return again, errors.Join(stopping, k.report(ctx, nc, Source, k.sourceSide(held, v1alpha1.CheckpointCheckpointed, "")))
}

// keepRecord saves what a record says that the one on disk does not. Where that is full, it is found out anew by the next look.
func (k *Keeper) keepRecord(held *record) {
	if !held.unsaved {
		return
	}
	if err := k.records.save(held); err != nil {
		k.Log.Error(err, "noting how a source stands still; trying again", "nodeCheckpoint", held.Name)
	}
}

// note remembers how the source did not stand still: that it has ended stays.
func note(held *record, how v1alpha1.CheckpointDisturbance, words string) {
	if held.Disturbance == how || held.Disturbance == v1alpha1.CheckpointEnded {
		return
	}
	held.Disturbance, held.Disturbed, held.unsaved = how, words, true
}

// stopAnew pauses the containers that the kubelet has begun in the place of those that have ended, and tells whether there is one of each.
func (k *Keeper) stopAnew(ctx context.Context, held *record) (bool, error) {
	running, err := k.Driver.Containers(ctx, held.Pod.UID)
	if err != nil {
		return false, err
	}
	stopped := 0
	for _, c := range running {
		was, ours := held.Paused[c.Name]
		if !ours {
			continue
		}
		if was != c.ID {
			held.Paused[c.Name], held.unsaved = c.ID, true
		}
		if err := k.Driver.Pause(ctx, c.ID); err != nil { // it may have ended just now
			k.Log.Error(err, "pausing a container that has begun anew; trying again", "container", c.Name)
			continue
		}
		stopped++
	}
	return stopped == len(held.Paused), nil
}

// keepStill pauses whatever runs of a source that never runs again, until its NodeCheckpoint is gone. Its liveness probe may end what is
// paused, and the kubelet begins it anew. Once the kubelet ends the pod the agent kills the containers: they do not get the kubelet's
// signal, and would stay paused for the whole of terminationGracePeriodSeconds, while their peers wait for the end of their connections.
func (k *Keeper) keepStill(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (time.Duration, error) {
	running, err := k.Driver.Containers(ctx, nc.Spec.PodUID)
	if err != nil {
		return 0, err
	}
	var paused []containerd.Container
	for _, c := range running {
		if !slices.Contains(nc.Spec.Containers, v1alpha1.CheckpointedContainer{Name: c.Name}) {
			continue
		}
		if err := k.Driver.Pause(ctx, c.ID); err != nil {
			k.Log.Error(err, "pausing a container whose pod is to go; trying again", "container", c.Name)
			continue
		}
		paused = append(paused, c)
	}
	if len(paused) == 0 {
		return watchEvery, nil
	}
	return k.killTerminating(ctx, nc, paused), nil
}

// killTerminating ends paused containers where the kubelet ends their pod, and returns when to look again. Before the kubelet does, it
// would begin them anew.
func (k *Keeper) killTerminating(ctx context.Context, nc *v1alpha1.NodeCheckpoint, paused []containerd.Container) time.Duration {
	terminating, err := k.terminating(ctx, nc)
	if err != nil {
		k.Log.Error(err, "asking whether the kubelet ends a pod; its containers stay paused for the pod's grace period", "nodeCheckpoint", nc.Name)
		return watchEvery
	}
	if !terminating {
		return terminatingEvery
	}
	for _, c := range paused {
		if err := k.Driver.Kill(ctx, c.ID); err != nil {
			k.Log.Error(err, "killing a container whose pod ends; trying again", "container", c.Name)
			continue
		}
		k.Log.Info("killed a paused container, as the kubelet ends its pod", "nodeCheckpoint", nc.Name, "container", c.Name)
	}
	return terminatingEvery
}

// terminating tells whether the kubelet ends a source's pod. The API server is asked first, as its answer is small. A pod that was deleted
// by force is in neither's list; the kubelet's alone may be incomplete.
func (k *Keeper) terminating(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (bool, error) {
	pod := Pod{Namespace: nc.Spec.PodNamespace, Name: nc.Spec.PodName, UID: nc.Spec.PodUID}
	deleted, gone, err := k.API.Deleted(ctx, pod)
	if err != nil || !deleted {
		return false, err
	}
	listed, terminating, err := k.Driver.Terminating(ctx, pod.UID)
	return err == nil && (terminating || gone && !listed), err
}

// resumed tells of containers that another client resumed, and whether the NodeCheckpoint has come to nothing. From stage
// Restore on a pod may be at work with the state. Then all stay stopped until the controller that made that pod says what
// became of it. That it has not come to that, only the API server may say. The agent reports that before it resumes anything,
// on the version that it read. Where the controller takes the NodeCheckpoint to that stage meanwhile, the API server refuses
// either the controller's write or this one.
func (k *Keeper) resumed(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, why *disturbedError) (failed bool, err error) {
	now, err := k.API.Get(ctx, nc.Name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return false, fmt.Errorf("asking how far the NodeCheckpoint is: %w", err)
	case err == nil && now.UID == nc.UID && timeless(now):
		return false, nil
	case err == nil && now.UID == nc.UID && !now.Status.Source.Decided():
		of, side := Version{now.Name, now.UID, now.ResourceVersion}, k.sourceSide(nil, v1alpha1.CheckpointFailed, why.Error())
		side.Disturbance, side.Pending = why.how, true
		if err := k.API.Report(ctx, of, Source, side); err != nil {
			return false, fmt.Errorf("saying that a container did not stay paused: %w", err)
		}
	}
	return true, k.failSource(ctx, nc, held, why)
}

// blame remembers, of a source that has failed, how it did not stand still, as far as that is why, or it has ended: then what was in memory is lost.
func (k *Keeper) blame(ctx context.Context, held *record, why error) {
	var found *disturbedError
	if !errors.As(why, &found) && (!errors.As(k.undisturbed(ctx, held), &found) || found.how != v1alpha1.CheckpointEnded) {
		return
	}
	held.Disturbance, held.Disturbed = found.how, found.Error()
}

// disturbance is what is known of how the source did not stand still.
func disturbance(nc *v1alpha1.NodeCheckpoint, held *record) v1alpha1.CheckpointDisturbance {
	var known, told v1alpha1.CheckpointDisturbance
	if held != nil {
		known = held.Disturbance
	}
	if side := nc.Status.Source; side != nil {
		told = side.Disturbance
	}
	return cmp.Or(known, told)
}
