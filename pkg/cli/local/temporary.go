package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// temporaryPrefix names temporary cluster directories, so that those that nobody remembers are found.
const temporaryPrefix = "mainspring-local-"

func logPath(dir string) string { return filepath.Join(dir, "mainspring-local.log") }

// createLog makes the log of a background process and locks it. The process inherits the lock and the kernel drops it with
// the process, so a lock that can be taken means that none runs. The log appears only once it is locked, so that nobody
// takes a cluster that starts for one that was killed.
func createLog(path string) (*os.File, error) {
	fresh := path + ".new"
	log, err := os.OpenFile(fresh, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(log.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", fresh, err), log.Close())
	}
	if err := os.Rename(fresh, path); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

// temporaryDirs are our own temporary cluster directories below temp.
func temporaryDirs(temp string) []string {
	paths, _ := filepath.Glob(filepath.Join(temp, temporaryPrefix+"*")) // fails on a bad pattern only
	var own []string
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == os.Getuid() {
			own = append(own, path)
		}
	}
	return own
}

// sweep removes the temporary directories of clusters that were killed. What cannot be removed is left.
func sweep(temp string) {
	for _, dir := range temporaryDirs(temp) {
		if abandoned(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}

// abandoned says that a directory is that of a cluster whose process is gone: by its state file, or by its log when it was
// killed before it had one.
func abandoned(dir string) bool {
	if _, err := os.Stat(statePath(dir)); err == nil {
		_, err := Read(dir)
		return errors.Is(err, ErrEnded)
	}
	log, err := os.Open(logPath(dir))
	if err != nil {
		return false
	}
	defer log.Close()
	return unix.Flock(int(log.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// List gives the running clusters that have temporary directories below temp.
func List(temp string) []State {
	var running []State
	for _, dir := range temporaryDirs(temp) {
		if state, err := Read(dir); err == nil {
			running = append(running, state)
		}
	}
	return running
}

// TellAll prints clusters as a table.
func TellAll(out io.Writer, clusters []State) {
	if len(clusters) == 0 {
		fmt.Fprintln(out, "no local cluster runs in a temporary directory")
		return
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROCESS\tDIRECTORY\tKUBECONFIG")
	for _, s := range clusters {
		fmt.Fprintf(t, "%d\t%s\t%s\n", s.PID, s.Dir, s.Kubeconfig)
	}
	t.Flush()
	fmt.Fprintln(out, "to end one and remove its files: mainspring local down DIRECTORY")
}
