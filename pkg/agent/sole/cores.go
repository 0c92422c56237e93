package sole

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// names is from which byte of the file on holders are named. No core has so high a number.
const names = 1 << 16

// TakeCores keeps cores of the machine to this process: each is a byte of a file, at the core's number. All are taken or none. The file is
// one that whoever governs a core of this machine has to change in any case, and so has in common with all others; nothing is written to it.
// The error is a HeldError where another process keeps one of the cores for longer than Wait.
//
// The locks are those of the open file (F_OFD_SETLK): they go with the process, however it ends, and stay when it opens and closes the file for
// another reason, which it does. The kernel does not say whose they are, so each holder has an ordinary lock (F_SETLK), too, on a byte that nobody
// waits for. That one goes when its process closes the file once more, and then the holder has no name; it may also be in another PID namespace.
func TakeCores(ctx context.Context, path string, cores []int, w Waiting) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the cores: %w", err)
	}
	core := 0 // of which was heard last
	try := func() (err error) {
		core, err = lockCores(file, cores)
		return err
	}
	held := func() *HeldError {
		return &HeldError{Path: fmt.Sprintf("core %d, by its lock on %s", core, path), Holder: holderOf(file, core)}
	}
	if err := await(ctx, w, try, held); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	for _, c := range cores {
		_ = lockByte(file, unix.F_SETLK, names+c) // for messages only
	}
	return &Lock{file: file}, nil
}

// lockCores takes all cores, or none and says which one somebody else has.
func lockCores(file *os.File, cores []int) (held int, err error) {
	for _, c := range cores {
		if err := lockByte(file, unix.F_OFD_SETLK, c); err != nil {
			none := unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart} // length 0 is the whole file
			return c, errors.Join(err, unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &none))
		}
	}
	return 0, nil
}

func lockByte(file *os.File, command, at int) error {
	return unix.FcntlFlock(file.Fd(), command, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(at), Len: 1})
}

// holderOf is who has a core.
func holderOf(file *os.File, core int) string {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(names + core), Len: 1}
	if err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK || lock.Pid <= 0 {
		return nameOf(0)
	}
	return nameOf(uint64(lock.Pid))
}
