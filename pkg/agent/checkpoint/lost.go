package checkpoint

import (
	"context"
	"errors"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// targetRecord is what is held; nil: nothing. Where the record is lost, or says nothing, what this side has told counts, as far as the runtime has it:
// once the source has gone that state is nowhere else. Of which images the containers were made was not told, so that with the release the names go, too.
func (k *Keeper) targetRecord(ctx context.Context, nc *v1alpha1.NodeCheckpoint) (*record, error) {
	held, err := k.records.load(nc.UID, Target)
	switch {
	case errors.Is(err, errUnreadable):
		k.Log.Error(err, "going on by what was told of it", "nodeCheckpoint", nc.Name)
	case err != nil || held != nil:
		return held, err
	}
	held = k.newRecord(nc, Target)
	if held.Archives, err = k.told(ctx, nc.Status.Target); err != nil {
		return nil, err
	}
	if len(held.Archives) == 0 {
		return nil, k.records.remove(held)
	}
	return held, k.records.save(held)
}

// told are the archives that the target has said to have, as far as its runtime has them.
func (k *Keeper) told(ctx context.Context, side *v1alpha1.CheckpointSide) ([]archive, error) {
	if side.Settled() || side == nil || len(side.Archives) == 0 {
		return nil, nil
	}
	names, err := k.Driver.Images(ctx, imagePrefix)
	if err != nil {
		return nil, err
	}
	var list []archive
	for _, a := range side.Archives {
		if slices.Contains(names, a.Image) {
			list = append(list, archive{Container: a.Container, Bytes: a.Bytes, Digest: a.Digest, Image: a.Image, Imported: true, Restored: a.Restored})
		}
	}
	return list, nil
}
