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
	if d.lock, err = d.acquire(); err != nil {
		return nil, err
	}
	return d, nil
}

// acquire takes the directory's lock. The lock file of a temporary directory appears only once
// it is locked, so that nobody takes the directory for an abandoned one.
func (d *directory) acquire() (*os.File, error) {
	if !d.temporary {
		return lockFile(d.lockPath())
	}
	fresh := d.lockPath() + ".new"
	lock, err := lockFile(fresh)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(fresh, d.lockPath()); err != nil {
		return nil, errors.Join(fmt.Errorf("publishing the directory's lock: %w", err), lock.Close())
	}
	return lock, nil
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

// lockFile takes the lock of a plane's directory, or says that another plane has it.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the directory's lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("directory %s is in use by another plane: %w", filepath.Dir(path), err), file.Close())
	}
	return file, nil
}

// removeAbandoned removes temporary directories whose process was killed. What cannot be
// removed, such as another user's, is left.
func removeAbandoned(temp string) {
	dirs, _ := filepath.Glob(filepath.Join(temp, tempPattern+"*")) // fails on a bad pattern only
	for _, dir := range dirs {
		path := files{dir}.lockPath()
		if _, err := os.Stat(path); err != nil {
			continue // just being created
		}
		lock, err := lockFile(path)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
}
