package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Unified is the name, among controllers, of the hierarchy of cgroup v2.
const Unified = "unified"

// Version is how control groups are mounted.
type Version string

// The three ways: each controller in a hierarchy of its own, all in one, or v1 controllers beside a v2
// hierarchy, which may have controllers too.
const (
	V1     Version = "v1"
	V2     Version = "v2"
	Hybrid Version = "hybrid"
)

// Cgroups are the mounted control group hierarchies.
type Cgroups struct {
	Version Version
	mounts  map[string]string // by controller, Unified among them
	unified []string          // controllers of the v2 hierarchy
}

// ErrNoController is what Dir returns, wrapped, for a controller that is not mounted.
var ErrNoController = errors.New("control group controller is not mounted")

// Cgroups finds the hierarchies in mountinfo.
func (h Host) Cgroups() (Cgroups, error) {
	mounts, err := h.mounts()
	if err != nil {
		return Cgroups{}, fmt.Errorf("finding control groups: %w", err)
	}
	c := Cgroups{mounts: map[string]string{}}
	best := map[string]Mount{}
	for _, m := range visible(mounts) {
		for _, controller := range controllersOf(m) {
			if held, taken := best[controller]; rank(m) > 0 && (!taken || rank(m) > rank(held)) {
				best[controller] = m
			}
		}
	}
	for controller, m := range best {
		c.mounts[controller] = h.Path(m.Point)
	}
	if dir, ok := c.mounts[Unified]; ok {
		text, err := readString(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return Cgroups{}, fmt.Errorf("finding control groups: %w", err)
		}
		c.unified = strings.Fields(text)
	}
	if c.Version = c.version(); c.Version == "" {
		return Cgroups{}, fmt.Errorf("finding control groups: no hierarchy is mounted from its root: %w", ErrNoController)
	}
	return c, nil
}

func (c Cgroups) version() Version {
	_, unified := c.mounts[Unified]
	switch {
	case unified && len(c.mounts) == 1:
		return V2
	case unified:
		return Hybrid
	case len(c.mounts) > 0:
		return V1
	}
	return ""
}

// mounts are those of process 1 of a machine seen from outside, whose paths are from the machine's root.
func (h Host) mounts() ([]Mount, error) {
	files := []string{h.Proc("self", "mountinfo")}
	if !h.Local() {
		files = []string{h.Proc("1", "mountinfo"), h.Proc("self", "mountinfo")}
	}
	var faults []error
	for _, file := range files {
		text, err := readFile(file)
		if err == nil {
			return ParseMountInfo(text)
		}
		faults = append(faults, err)
	}
	return nil, errors.Join(faults...)
}

// controllersOf are the controllers of a mount of control groups, none of another mount. Named
// hierarchies, such as systemd's, have none.
func controllersOf(m Mount) []string {
	switch m.Type {
	case "cgroup2":
		return []string{Unified}
	case "cgroup":
		return slices.DeleteFunc(slices.Clone(m.SuperOptions), func(option string) bool {
			return !slices.Contains(v1Controllers, option)
		})
	}
	return nil
}

var v1Controllers = []string{
	"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "misc", "net_cls", "net_prio",
	"perf_event", "pids", "rdma",
}

// rank prefers mounts from the hierarchy's root. Seen from a cgroup namespace the machine's own root is
// above the namespace's ("/../.."), and "/" only the namespace's; a mount of anything below is of no use.
func rank(m Mount) int {
	if m.Root == "/" {
		return 1
	}
	steps := strings.Split(strings.TrimPrefix(m.Root, "/"), "/")
	for _, step := range steps {
		if step != ".." {
			return 0
		}
	}
	return 1 + len(steps)
}

// Has says that a controller can be used: one of v1 that is mounted, or one of the v2 hierarchy.
func (c Cgroups) Has(controller string) bool {
	_, err := c.base(controller)
	return err == nil
}

// InUnified says that a controller is one of the v2 hierarchy.
func (c Cgroups) InUnified(controller string) bool {
	_, v1 := c.mounts[controller]
	return !v1 && slices.Contains(c.unified, controller)
}

// base is the root directory of the hierarchy that has the controller.
func (c Cgroups) base(controller string) (string, error) {
	if dir, ok := c.mounts[controller]; ok {
		return dir, nil
	}
	if dir, ok := c.mounts[Unified]; ok && slices.Contains(c.unified, controller) {
		return dir, nil
	}
	return "", fmt.Errorf("%w: %s (control groups are %s)", ErrNoController, controller, c.Version)
}

// Dir is the directory of a group in the hierarchy of a controller ("cpu", "cpuset", ..., or Unified);
// "/" is the hierarchy's root. It refuses paths that are not clean and absolute, and groups that are
// not there or lie behind a symbolic link.
func (c Cgroups) Dir(controller, group string) (string, error) {
	base, err := c.base(controller)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(group, "/") || path.Clean(group) != group {
		return "", fmt.Errorf("control group %q; want a clean absolute path below the hierarchy's root", group)
	}
	dir := base
	for _, name := range strings.Split(strings.Trim(group, "/"), "/") {
		dir = filepath.Join(dir, name)
		info, err := os.Lstat(dir)
		if err != nil {
			return "", fmt.Errorf("finding control group %s of controller %s: %w", group, controller, err)
		}
		if !info.IsDir() {
			return "", fmt.Errorf("control group %s of controller %s: %s is no directory", group, controller, dir)
		}
	}
	return dir, nil
}

// ID is the number by which the kernel's programs know the group of a directory that Dir gave: its inode.
func ID(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	return st.Ino, nil
}
