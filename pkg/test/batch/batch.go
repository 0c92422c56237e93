// Package batch has the kernel schedule tests, and the programs that they start, for throughput instead of latency.
//
// Dozens of API servers, etcds and controllers share few cores. By the usual policy each wake-up takes a core from
// another program, 30,000 times a second on two cores, and the one that has lost it goes on with cold caches. A thread
// of policy SCHED_BATCH (sched(7)) takes no core when it wakes up.
package batch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Slice is how long a thread may run before another gets its core. The kernel takes it from 6.12 on, and keeps its own before
// (Documentation/scheduler/sched-eevdf.rst).
const Slice = 20 * time.Millisecond

// Start starts a command that the kernel schedules as a batch, with all that it starts.
func Start(cmd *exec.Cmd) error {
	// A child has the policy of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := enter(0)
	if forbidden(err) {
		return cmd.Start()
	}
	if err != nil {
		return err
	}
	started := cmd.Start()
	if err := unix.SchedSetAttr(0, before, 0); err != nil {
		runtime.LockOSThread() // the thread ends with its goroutine instead of running others
		if started == nil {
			started = errors.Join(cmd.Process.Kill(), cmd.Wait())
		}
		return errors.Join(started, fmt.Errorf("setting the scheduling policy back: %w", err))
	}
	return started
}

// forbidden reports whether a sandbox forbids to set the policy: what is tested is the same without it, and takes longer.
func forbidden(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) }

// Enter makes this process a batch, with all that it starts from now on.
func Enter() error {
	// A thread has the policy of the one that made it: those that were made while the first pass looked have the new one after the second.
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("listing the threads: %w", err)
		}
		for _, thread := range threads {
			tid, err := strconv.Atoi(thread.Name())
			if err != nil {
				return fmt.Errorf("listing the threads: %w", err)
			}
			if _, err := enter(tid); err != nil && !forbidden(err) && !errors.Is(err, unix.ESRCH) { // one that has ended needs none
				return err
			}
		}
	}
	return nil
}

// enter makes a thread a batch, 0 the calling one, and returns how it was scheduled before.
func enter(tid int) (before *unix.SchedAttr, err error) {
	if before, err = unix.SchedGetAttr(tid, 0); err != nil {
		return nil, fmt.Errorf("reading the scheduling policy: %w", err)
	}
	before.Size = unix.SizeofSchedAttr
	batch := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH, Nice: before.Nice, Runtime: uint64(Slice)}
	if err := unix.SchedSetAttr(tid, &batch, 0); err != nil {
		return nil, fmt.Errorf("setting the scheduling policy: %w", err)
	}
	return before, nil
}
