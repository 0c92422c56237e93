package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// errDisturbed means that a container did not stay paused.
var errDisturbed = errors.New("somebody else resumed, ended or started anew a container that was to stay paused (a liveness probe does, after its failureThreshold)")

// undisturbed says whether the containers are still paused.
func (k *Keeper) undisturbed(ctx context.Context, held *record) error {
	for _, name := range slices.Sorted(maps.Keys(held.Paused)) {
		paused, err := k.Driver.Paused(ctx, held.Paused[name])
		if err != nil {
			k.Log.Error(err, "asking whether a container is still paused; asking again", "container", name)
			continue // containerd is being started anew: the containers stay as they are
		}
		if !paused {
			return fmt.Errorf("container %s: %w", name, errDisturbed)
		}
	}
	return nil
}

// disturbed tells of containers that did not stay stopped. From stage Restore on a pod may be at work with the state, so that those which are
// still stopped stay so, until whoever has made that pod says what became of it. That it has not come to that, only the API server may say; and it is
// said before anything is resumed, of the version that was read: whoever takes it to that stage meanwhile is refused that, or refuses this.
func (k *Keeper) disturbed(ctx context.Context, nc *v1alpha1.NodeCheckpoint, held *record, why error) (time.Duration, error) {
	now, err := k.API.Get(ctx, nc.Name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return 0, fmt.Errorf("asking how far the NodeCheckpoint is: %w", err)
	case err == nil && now.UID == nc.UID && timeless(now):
		return watchEvery, k.report(ctx, nc, Source, k.sourceSide(held, v1alpha1.CheckpointCheckpointed, why.Error()))
	case err == nil && now.UID == nc.UID && !now.Status.Source.Settled():
		of, side := Version{now.Name, now.UID, now.ResourceVersion}, k.sourceSide(nil, v1alpha1.CheckpointFailed, why.Error())
		if err := k.API.Report(ctx, of, Source, side); err != nil {
			return 0, fmt.Errorf("saying that a container did not stay paused: %w", err)
		}
	}
	return 0, k.failSource(ctx, nc, held, why)
}
