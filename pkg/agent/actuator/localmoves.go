package actuator

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Where says in which groups a process is, by hierarchy, for Back.
func (l *Local) Where(pid int) (map[string]string, error) {
	was, err := l.groupsOf(pid)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, hierarchy := range l.hierarchies {
		group, ok := was[hierarchy]
		if !ok {
			return nil, fmt.Errorf("process %d is in no group of %s", pid, hierarchy)
		}
		out[hierarchy] = group
	}
	return out, nil
}

// Join moves a process into a group, and returns where it was, for Back.
func (l *Local) Join(group string, pid int) (map[string]string, error) {
	before, err := l.Where(pid)
	if err != nil {
		return nil, err
	}
	for _, hierarchy := range l.hierarchies {
		if err := l.move(hierarchy, group, pid); err != nil {
			return before, err
		}
	}
	return before, nil
}

// Processes are those in a group, in any hierarchy. One that is not there has none.
func (l *Local) Processes(group string) ([]int, error) {
	var out []int
	for _, hierarchy := range l.hierarchies {
		dir, err := l.cgroups.Dir(hierarchy, group)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return nil, fmt.Errorf("listing the processes of group %s of %s: %w", group, hierarchy, err)
		}
		pids, err := parseProcesses(string(text))
		if err != nil {
			return nil, fmt.Errorf("listing the processes of group %s of %s: %w", group, hierarchy, err)
		}
		out = append(out, pids...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Back moves a process to where it was. Where that group has gone it is the nearest above it that takes the process,
// and notes say so. One that has ended is no error.
func (l *Local) Back(pid int, before map[string]string) (notes []string, err error) {
	var faults []error
	for _, hierarchy := range slices.Sorted(maps.Keys(before)) {
		group := before[hierarchy]
		took, err := l.moveNear(hierarchy, group, pid)
		switch {
		case errors.Is(err, unix.ESRCH):
		case err != nil:
			faults = append(faults, err)
		case took != group:
			notes = append(notes, fmt.Sprintf("process %d was in group %s of %s, which has gone; it is in %s now", pid, group, hierarchy, took))
		}
	}
	return notes, errors.Join(faults...)
}

// moveNear moves a process to a group, or where that has gone to one above, and returns which. Those above may not
// take it: one of v2 that passes controllers on has no processes of its own, but for the root.
func (l *Local) moveNear(hierarchy, group string, pid int) (took string, err error) {
	err = l.move(hierarchy, group, pid)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		return group, err
	}
	for err != nil && !errors.Is(err, unix.ESRCH) && group != "/" {
		group = path.Dir(group)
		err = l.move(hierarchy, group, pid)
	}
	return group, err
}

func (l *Local) move(hierarchy, group string, pid int) error {
	dir, err := l.cgroups.Dir(hierarchy, group)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("moving process %d to group %s of %s: %w", pid, group, hierarchy, err)
	}
	return nil
}

// groupsOf are the groups of a process, by controller; host.Unified is that of v2.
func (l *Local) groupsOf(pid int) (map[string]string, error) {
	text, err := os.ReadFile(l.host.Proc(strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("finding the groups of process %d: %w", pid, err)
	}
	return parseMembership(string(text)), nil
}
