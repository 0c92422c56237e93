// Package sole keeps a directory, or cores of the machine, to one process at a time.
package sole

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// Wait is how long the former process may take to end.
const Wait = 20 * time.Second

// Step is how often it is looked whether it has.
const Step = 200 * time.Millisecond

// Lock is held until Release, or until the process has ended, however it ends. Its children do not hold it.
type Lock struct{ file *os.File }

// HeldError means: another process holds the lock, and did not end in time.
type HeldError struct {
	// Path of the lock; of one of a core, with the core's number before it.
	Path string
	// Holder is that process, as "process 4711".
	Holder string
}

func (e *HeldError) Error() string { return fmt.Sprintf("%s holds %s", e.Holder, e.Path) }

// Waiting says how to wait for another process to end.
type Waiting struct {
	Clock clock.WithTicker
	// Begins is called once, with the holder, when there is something to wait for. It may be nil.
	Begins func(holder string)
}

// Take the lock of a name in a directory, which is made when it is not there. The error is a HeldError where
// another process keeps it for longer than Wait.
func Take(ctx context.Context, dir, name string, w Waiting) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of a lock: %w", err)
	}
	path := filepath.Join(dir, name)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	try := func() error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
	if err := await(ctx, w, try, func() *HeldError { return &HeldError{Path: path, Holder: holder(file)} }); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	sign(file)
	return &Lock{file: file}, nil
}

// sign writes who holds a lock, which is for messages only: the lock itself is the kernel's, and is held on a disk that is full, too.
func sign(file *os.File) {
	if err := file.Truncate(0); err != nil {
		return
	}
	_, _ = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
}

// await repeats what takes a lock while another process has it; held says what, and who.
func await(ctx context.Context, w Waiting, try func() error, held func() *HeldError) error {
	step, end := w.Clock.NewTicker(Step), w.Clock.NewTimer(Wait)
	defer step.Stop()
	defer end.Stop()
	for first := true; ; first = false {
		err := try()
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("locking %s: %w", held().Path, err)
		}
		if first && w.Begins != nil {
			w.Begins(held().Holder)
		}
		select {
		case <-step.C():
		case <-end.C():
			return held()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// holder is who wrote its number into the lock.
func holder(file *os.File) string {
	text := make([]byte, 32)
	n, _ := file.ReadAt(text, 0) // it ends before the buffer does
	pid, err := strconv.ParseUint(strings.TrimSpace(string(text[:n])), 10, 31)
	if err != nil {
		return nameOf(0)
	}
	return nameOf(pid)
}

// nameOf a process; 0 is one that is not known.
func nameOf(pid uint64) string {
	if pid == 0 {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}

// Release lets the next one in. No lock needs none.
func (l *Lock) Release() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}
