package privileged

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// groupPrefix begins the names of the control groups that tests make; the number of their process follows.
const groupPrefix = "mainspring-test-"

// removeLeftover removes the groups of tests whose process was killed before it could, below the roots of all hierarchies. Groups that still
// have tasks stay.
func removeLeftover(cgroups, proc string) {
	found, _ := filepath.Glob(filepath.Join(cgroups, "*", groupPrefix+"*"))
	unified, _ := filepath.Glob(filepath.Join(cgroups, groupPrefix+"*"))
	for _, dir := range append(found, unified...) {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), groupPrefix))
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(proc, strconv.Itoa(pid))); errors.Is(err, fs.ErrNotExist) {
			removeGroups(dir)
		}
	}
}

// removeGroups removes a group and those below it. Its files go with a group's directory, so only directories are looked at.
func removeGroups(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeGroups(filepath.Join(dir, e.Name()))
		}
	}
	_ = unix.Rmdir(dir)
}
