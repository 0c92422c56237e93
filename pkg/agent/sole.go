package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

const (
	lockFile = "lock"
	// soleWait is how long an agent waits for the one before it to end, looking each soleStep.
	soleWait, soleStep = 20 * time.Second, 200 * time.Millisecond
)

// sole sees to it that one agent at a time uses a state directory: two would report, count and serve the
// kubelet in turns, each undoing what the other did.
type sole struct {
	dir   string
	clock clock.WithTicker
	log   logr.Logger
	file  *os.File
}

// Name implements Service.
func (s *sole) Name() string { return "lock" }

// Init waits for the lock, which ends with the process that has it.
func (s *sole) Init(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("making --state-dir: %w", err)
	}
	path := filepath.Join(s.dir, lockFile)
	var err error
	if s.file, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("opening the lock: %w", err)
	}
	step, end := s.clock.NewTicker(soleStep), s.clock.NewTimer(soleWait)
	defer step.Stop()
	defer end.Stop()
	for first := true; ; first = false {
		err := unix.Flock(int(s.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("locking %s: %w", path, err)
		}
		if first {
			s.log.Info("another agent uses this state directory; waiting for it to end", "lock", path)
		}
		select {
		case <-step.C():
		case <-end.C():
			return fmt.Errorf("another agent uses --state-dir %s of this node; want one agent on a node, or the other to end", s.dir)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Shutdown lets the next one in.
func (s *sole) Shutdown(context.Context) error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
