package localnode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// removeAbandoned undoes what nodes changed whose processes were killed.
func (m machine) removeAbandoned(ctx context.Context) error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), tempPattern+"*"))
	if err != nil {
		return fmt.Errorf("listing the directories of nodes: %w", err)
	}
	var errs []error
	for _, dir := range dirs {
		if _, err := os.Stat(lockPath(dir)); err != nil {
			continue // just being created
		}
		lock, err := lockFile(lockPath(dir))
		if errors.Is(err, errLocked) {
			continue
		}
		if err == nil {
			err = errors.Join(m.undo(ctx, dir), lock.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cleaning up after the node of %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// undo ends everything that runs from a node's directory, takes back what its record says, and removes the
// directory. It does as much as it can; called again it goes on.
func (m machine) undo(ctx context.Context, dir string) error {
	r, err := readRecord(dir)
	if err != nil {
		return err
	}
	errs := []error{
		m.killUsers(dir),
		m.removeGroup(ctx, r.Group),
		m.unmountBelow(dir),
		removeShimSockets(dir),
		removeLinksInto(containerLogs, dir),
		m.giveBackSysctls(dir, r.Sysctls),
		removeAddress(ctx, r.Address),
	}
	if len(r.Created) > 0 && !othersLive(dir) {
		errs = append(errs, removeCreated(r.Created))
	}
	if err := errors.Join(errs...); err != nil {
		return err // the directory stays for another attempt
	}
	return os.RemoveAll(dir)
}

// giveBackSysctls writes back what was there, unless another node still needs what kubelets set: the last one does.
func (m machine) giveBackSysctls(dir string, were map[string]string) error {
	if othersLive(dir) {
		return nil
	}
	return m.restoreSysctls(were)
}

// othersLive tells whether another node lives on this machine, which shares the directories outside.
func othersLive(dir string) bool {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPattern+"*")) // fails on a bad pattern only
	return slices.ContainsFunc(dirs, func(other string) bool { return other != dir && lives(other) })
}

// lives tells whether a node lives in the directory.
func lives(dir string) bool {
	if _, err := os.Stat(lockPath(dir)); err != nil {
		return false // just being created
	}
	lock, err := lockFile(lockPath(dir))
	if err == nil {
		_ = lock.Close()
	}
	return errors.Is(err, errLocked)
}

func removeCreated(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if slices.Contains(outside, dir) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// killUsers kills the processes whose command line names a file of the directory: shims outlive containerd.
func (m machine) killUsers(dir string) error {
	files, err := filepath.Glob(m.Proc("[0-9]*", "cmdline"))
	if err != nil {
		return fmt.Errorf("listing processes: %w", err)
	}
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte(dir+"/")) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	return nil
}

// unmountBelow unmounts what is mounted below the directory, the last first.
func (m machine) unmountBelow(dir string) error {
	mounts, err := m.mounts()
	if err != nil {
		return err
	}
	for _, mount := range slices.Backward(mounts) {
		if !strings.HasPrefix(mount.Point, dir+"/") {
			continue
		}
		err := unix.Unmount(mount.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: it went with the one above it
			return fmt.Errorf("unmounting %s: %w", mount.Point, err)
		}
	}
	return nil
}

// removeShimSockets removes the sockets of shims, which are in a directory that all containerds share.
func removeShimSockets(dir string) error {
	files, err := filepath.Glob(filepath.Join(stateDir(dir), "io.containerd.runtime.v2.task", "*", "*", "bootstrap.json"))
	if err != nil {
		return fmt.Errorf("listing the sockets of shims: %w", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		var shim struct{ Address string }
		if err != nil || json.Unmarshal(content, &shim) != nil {
			continue
		}
		socket, ok := strings.CutPrefix(shim.Address, "unix://")
		if !ok || filepath.Dir(socket) != shimSockets {
			continue
		}
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the socket of a shim: %w", err)
		}
	}
	return nil
}

// shimSockets is where shims listen.
const shimSockets = "/run/containerd/s"

// removeLinksInto removes the symbolic links of a directory that lead into dir.
func removeLinksInto(links, dir string) error {
	entries, err := os.ReadDir(links)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing links to logs: %w", err)
	}
	for _, entry := range entries {
		link := filepath.Join(links, entry.Name())
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir+"/") {
			if err := os.Remove(link); err != nil {
				return fmt.Errorf("removing a link to a log: %w", err)
			}
		}
	}
	return nil
}
