package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	lockPoll    = 200 * time.Millisecond
	reportEvery = 10 * time.Second
)

// lock takes the file lock of an entry and returns what releases it. The kernel releases it as
// well when the process dies.
func (t *Toolchain) lock(ctx context.Context, path string, recipe Recipe) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := t.waitForLock(ctx, file, recipe); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

func (t *Toolchain) waitForLock(ctx context.Context, file *os.File, recipe Recipe) error {
	ticker := t.Clock.NewTicker(lockPoll)
	defer ticker.Stop()
	start, reported := t.Clock.Now(), -reportEvery
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("locking %s: %w", file.Name(), err)
		}
		if waited := t.Clock.Since(start); waited-reported >= reportEvery {
			t.printf("%s: waiting for another build of it, %s", recipe.label(), clockTime(waited))
			reported = waited
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for another build of %s: %w", recipe.label(), ctx.Err())
		case <-ticker.C():
		}
	}
}

// clockTime prints a duration as minutes and seconds.
func clockTime(d time.Duration) string {
	seconds := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%02d:%02d", seconds/60, seconds%60)
}
