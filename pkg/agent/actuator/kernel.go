package actuator

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// kernel is everything through which the package touches the machine. Tests put one in its place that
// keeps a tree of files by the kernel's rules.
type kernel interface {
	// open a control group's directory; fs.ErrNotExist when it is not there.
	open(dir string) (files, error)
	// inode of a directory.
	inode(dir string) (uint64, error)
	children(dir string) ([]string, error)
	// writable says why this process may not write to the files of a group, without writing; nil when it may.
	writable(dir string) error
	mkdir(dir string) error
	rmdir(dir string) error
	// attr and setAttr are HOT.
	attr(tid int, a *unix.SchedAttr) error
	setAttr(tid int, a *unix.SchedAttr) error
	// started is the start time of a thread, in ticks since boot: a number used again has another.
	started(tid int) (uint64, error)
	// progress is the CPU time that a thread used, in nanoseconds, and its state, by the letter of proc_pid_stat(5).
	progress(tid int) (usedNs uint64, state byte, err error)
	// borrow runs a function on a thread of this process that nothing else runs on, and says which groups
	// it came from, by controller.
	borrow(do func(tid int, home map[string]string) error) error
	// tickUs is the time between two ticks, at which the kernel looks at budgets by itself.
	tickUs() int64
	// pause lets the kernel do what it does later, such as giving back the bandwidth of removed groups.
	pause(d time.Duration)
}

// files are those of one control group, whatever its path is by now.
type files interface {
	id() uint64
	read(name string) (string, error)
	write(name, value string) error
	// keep files open that are read often; those that are not there are left out.
	keep(names ...string)
	// control opens a file for the hot path.
	control(name string) (control, error)
	// list reads the numbers of the group's threads as they are now. HOT; buf is scratch.
	list(into []int32, buf []byte) ([]int32, error)
	close() error
}

// control is an open file. write is HOT.
type control interface {
	write(value []byte) error
	close() error
}

// typed are the errors of a write that callers tell apart; it never allocates.
func typed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL):
		return ErrNoRoom
	case errors.Is(err, unix.EBUSY):
		return ErrBusy
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		return ErrGone
	}
	return err
}

// gone says that an error means: the group is not there any more.
func gone(err error) bool {
	return errors.Is(err, ErrGone) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// describe adds to the error of a write what was tried, keeping what callers ask for.
func describe(group, file, value string, err error) error {
	cause := err
	var number unix.Errno
	if errors.As(err, &number) {
		cause = typed(number)
		if cause != error(number) { //nolint:errorlint // The very value that typed was given.
			cause = fmt.Errorf("%w (%w)", cause, number)
		}
	}
	return fmt.Errorf("writing %q to %s of %s: %w", value, file, group, cause)
}
