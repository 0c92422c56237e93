package standalone

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Launch becomes the command of a server, once its parent says on descriptor 3 that the process is where its
// budget is. With a priority above 0 the command starts as SCHED_FIFO. It returns only with an error.
func Launch(priority int, command []string) error {
	if len(command) == 0 {
		return errors.New("no command; want a program and its arguments")
	}
	runtime.LockOSThread()
	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("finding the command: %w", err)
	}
	gate := os.NewFile(3, "gate")
	if gate == nil {
		return errors.New("descriptor 3 is closed; want a pipe from the parent")
	}
	if n, err := gate.Read(make([]byte, 1)); n != 1 {
		return fmt.Errorf("waiting for the parent: it gave up: %w", err)
	}
	if err := gate.Close(); err != nil {
		return fmt.Errorf("closing descriptor 3: %w", err)
	}
	// The wish to end with the parent is the thread's, and this need not be the one that it was set for.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("asking to end with the parent: %w", err)
	}
	if priority > 0 {
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: uint32(priority)}
		if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
			return fmt.Errorf("becoming SCHED_FIFO %d: %w", priority, err)
		}
	}
	return fmt.Errorf("starting %s: %w", path, unix.Exec(path, command, os.Environ()))
}
