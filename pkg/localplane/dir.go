package localplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// tempPattern names temporary plane directories, so that those of killed processes are found.
const tempPattern = "mainspring-plane-"

// directory is a plane's locked directory. The kernel drops the lock with the process, so a
// lock that can be taken means that no plane lives there.
type directory struct {
	files
	lock      *os.File
	temporary bool
}

// openDirectory creates and locks dir, or a temporary directory when dir is empty.
func openDirectory(dir string) (*directory, error) {
	temporary := dir == ""
	if temporary {
		removeAbandoned(os.TempDir())
		created, err := os.MkdirTemp("", tempPattern)
		if err != nil {
			return nil, fmt.Errorf("creating a temporary directory: %w", err)
		}
		dir = created
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving Dir: %w", err)
	}
	d := &directory{files: files{dir}, temporary: temporary}
	if err := d.create(); err != nil {
		return nil, err
	}
	if d.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	return d, nil
}

// close unlocks the directory, and removes it when it is a temporary one and its content has no
// more use. One that stays is removed when the next plane starts.
func (d *directory) close(remove bool) error {
	var err error
	if d.temporary && remove {
		err = os.RemoveAll(d.dir)
	}
	return errors.Join(err, d.lock.Close())
}

// lockDir takes the lock of a plane's directory, or says that another plane has it.
func lockDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the directory's lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("Dir %s is in use by another plane: %w", dir, err), file.Close())
	}
	return file, nil
}

// removeAbandoned removes temporary directories whose process was killed. What cannot be
// removed, such as another user's, is left.
func removeAbandoned(temp string) {
	dirs, _ := filepath.Glob(filepath.Join(temp, tempPattern+"*")) // fails on a bad pattern only
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "lock")); err != nil {
			continue // just being created
		}
		lock, err := lockDir(dir)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
}
