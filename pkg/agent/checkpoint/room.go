package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// promise is what an archive takes that is not complete yet: of the quota, and of the disk until it is.
type promise struct{ quota, disk int64 }

// promises are those of archives that are being written or brought, by NodeCheckpoint and container. They are made under one lock with the question whether
// there is room: what several take at once must hold together.
type promises struct {
	mu sync.Mutex
	of map[types.UID]map[string]promise
}

func newPromises() promises { return promises{of: map[types.UID]map[string]promise{}} }

// sum of all. The caller has the lock.
func (p *promises) sum() (out promise) {
	for _, list := range p.of {
		for _, one := range list {
			out.quota, out.disk = out.quota+one.quota, out.disk+one.disk
		}
	}
	return out
}

// release what is promised of a container, or of all; what is complete is on record.
func (p *promises) release(uid types.UID, container string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.of[uid], container); container == "" || len(p.of[uid]) == 0 {
		delete(p.of, uid)
	}
}

// demand is room that is asked for: size of an archive beside what is held and promised, and what must be free of the disk to write it, beside what is
// promised.
type demand struct{ size, held, disk, promised int64 }

// room says what keeps an archive from being written to the directory. It is that of the agent's state: containerd's, where the runtime writes first, is not in
// the agent's sight, and a dump or import that finds that disk full fails by itself.
func (l Limits) room(dir string, d demand) error {
	switch {
	case l.Archive > 0 && d.size > l.Archive:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, d.size, l.Archive)
	case l.Quota > 0 && d.held+d.size > l.Quota:
		return fmt.Errorf("%w: %d bytes beside %d that are held or promised, at most %d", ErrQuota, d.size, d.held, l.Quota)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return fmt.Errorf("asking how much of the disk is free: %w", err)
	}
	keep := l.free(int64(stat.Blocks) * stat.Bsize) //nolint:gosec // no disk has 2^63 bytes
	if free := int64(stat.Bavail) * stat.Bsize; free-d.promised-d.disk < keep {
		return fmt.Errorf("%w: %d bytes are free, of which %d are promised to others, %d are needed to write one of %d bytes and %d have to stay free",
			ErrQuota, free, d.promised, d.disk, d.size, keep)
	}
	return nil
}

// held is how much of the disk archives take, in bytes.
func (k *Keeper) held() (int64, error) {
	all, err := k.records.all()
	var sum int64
	for _, one := range all {
		for _, a := range one.Archives {
			sum += a.Bytes
		}
	}
	return sum, err
}

// estimate is about how large the largest archive will be; an error says that there is no room for them. Else their room is promised.
func (k *Keeper) estimate(ctx context.Context, nc *v1alpha1.NodeCheckpoint, ids map[string]string) (int64, error) {
	sizes := map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		memory, written, err := k.Driver.Memory(ctx, nc.Spec.PodUID, ids[name])
		if err != nil {
			return 0, err
		}
		sizes[name] = memory + written
	}
	return k.promise(nc, sizes)
}

// promise room for archives that are written one after the other, and returns the size of the largest.
func (k *Keeper) promise(nc *v1alpha1.NodeCheckpoint, sizes map[string]int64) (int64, error) {
	k.promises.mu.Lock()
	defer k.promises.mu.Unlock()
	held, err := k.held()
	if err != nil {
		return 0, err
	}
	others, mine, sum, largest := k.promises.sum(), map[string]promise{}, int64(0), int64(0)
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		size := sizes[name]
		if err := k.most(nc).room(k.Dir, demand{size, held + others.quota + sum, sum + size*copiesOut, others.disk}); err != nil {
			return 0, fmt.Errorf("container %s, by what it has in memory and has written: %w", name, err)
		}
		mine[name] = promise{size, size}
		sum, largest = sum+size, max(largest, size)
	}
	mine[""] = promise{0, largest * (copiesOut - 1)} // of whichever is being written
	k.promises.of[nc.UID] = mine
	return largest, nil
}

// expect an archive: it is on record from then on, and counts as held.
func (k *Keeper) expect(nc *v1alpha1.NodeCheckpoint, held *record, want v1alpha1.CheckpointArchive) error {
	k.promises.mu.Lock()
	defer k.promises.mu.Unlock()
	if held.archive(want.Container) == nil {
		before, err := k.held()
		if err != nil {
			return err
		}
		others := k.promises.sum()
		if err := k.most(nc).room(k.Dir, demand{want.Bytes, before + others.quota, want.Bytes * copiesIn, others.disk}); err != nil {
			return err
		}
		held.Archives = append(held.Archives, archive{
			Container: want.Container, Bytes: want.Bytes, Digest: want.Digest, Image: imageOf(nc.UID, want.Container),
		})
		if err := k.records.save(held); err != nil {
			return err
		}
	}
	k.promises.of[nc.UID] = map[string]promise{want.Container: {0, want.Bytes * copiesIn}}
	return nil
}
