package localnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// tempPattern names the directories of nodes, so that those of killed processes are found.
const tempPattern = "mainspring-node-"

// record is what a node changes on the machine. It is on disk before the first change, so that whoever
// finds it can undo them all.
type record struct {
	// Group of everything that runs in containers, in every hierarchy of control groups.
	Group string `json:"group"`
	// Address that the node adds to the loopback device.
	Address string `json:"address"`
	// Sysctls that a kubelet sets, as they were.
	Sysctls map[string]string `json:"sysctls"`
	// Created are directories outside the node's own that were not there.
	Created []string `json:"created"`
}

// directory is a node's locked directory. The kernel drops the lock with the process, so a lock that can
// be taken means that no node lives there.
type directory struct {
	path string
	lock *os.File
}

func (d directory) file(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

func lockPath(dir string) string   { return filepath.Join(dir, "lock") }
func recordPath(dir string) string { return filepath.Join(dir, "node.json") }

// newDirectory makes and locks a directory. Its lock appears only once it is held, so that nobody takes
// it for an abandoned one.
func newDirectory() (directory, error) {
	path, err := os.MkdirTemp("", tempPattern)
	if err != nil {
		return directory{}, fmt.Errorf("creating the node's directory: %w", err)
	}
	fresh := lockPath(path) + ".new"
	lock, err := lockFile(fresh)
	if err != nil {
		return directory{}, errors.Join(err, os.RemoveAll(path))
	}
	if err := os.Rename(fresh, lockPath(path)); err != nil {
		return directory{}, errors.Join(fmt.Errorf("publishing the lock: %w", err), lock.Close(), os.RemoveAll(path))
	}
	return directory{path: path, lock: lock}, nil
}

// errLocked means that a node lives in a directory.
var errLocked = errors.New("in use by another node")

func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", errLocked, filepath.Dir(path), err), file.Close())
	}
	return file, nil
}

// save puts the record on disk, whole or not at all.
func (r record) save(dir string) error {
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the node's record: %w", err)
	}
	path := recordPath(dir)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("writing the node's record: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing the node's record: %w", err)
	}
	return nil
}

// readRecord reads a node's record; one that was never written is empty, since nothing was changed.
func readRecord(dir string) (record, error) {
	content, err := os.ReadFile(recordPath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("reading the node's record: %w", err)
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return record{}, fmt.Errorf("reading the node's record: %w", err)
	}
	return r, nil
}
