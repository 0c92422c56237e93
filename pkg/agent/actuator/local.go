package actuator

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Local makes groups for processes that no container runtime made, and moves processes into them. It sets no
// budgets: that is a Backend's.
type Local struct {
	host        host.Host
	cgroups     host.Cgroups
	hierarchies []string
}

// NewLocal prepares for a backend of the identity. With IdentityCpuset the groups are only in the hierarchy of
// cpuset: the processes stay in the CPU group that they are in, whose real-time bandwidth they use.
func NewLocal(h host.Host, identity string) (*Local, error) {
	cgroups, err := h.Cgroups()
	if err != nil {
		return nil, err
	}
	l := &Local{host: h, cgroups: cgroups}
	wanted := []string{"cpu", "cpuset"}
	if identity == IdentityCpuset {
		wanted = []string{"cpuset"}
	}
	for _, controller := range wanted {
		name := controller
		if cgroups.InUnified(controller) {
			name = host.Unified
		} else if !cgroups.Has(controller) {
			return nil, fmt.Errorf("making groups for local processes: %w: %s", host.ErrNoController, controller)
		}
		if !slices.Contains(l.hierarchies, name) {
			l.hierarchies = append(l.hierarchies, name)
		}
	}
	return l, nil
}

// Make makes a group and those above it. They may use the cores and memory nodes of the group above.
func (l *Local) Make(group string) error {
	if !strings.HasPrefix(group, "/") || path.Clean(group) != group || group == "/" {
		return fmt.Errorf("making group %q: want a clean absolute path below the root", group)
	}
	for _, hierarchy := range l.hierarchies {
		dir, err := l.cgroups.Dir(hierarchy, "/")
		if err != nil {
			return err
		}
		for _, name := range strings.Split(strings.Trim(group, "/"), "/") {
			if err := l.prepare(hierarchy, dir); err != nil {
				return err
			}
			dir = filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("making group %s: %w", group, err)
			}
			if err := inherit(hierarchy, dir); err != nil {
				return fmt.Errorf("making group %s: %w", group, err)
			}
		}
	}
	return nil
}

// prepare has a group of v2 pass its controllers on to those below.
func (l *Local) prepare(hierarchy, dir string) error {
	if hierarchy != host.Unified {
		return nil
	}
	file := filepath.Join(dir, "cgroup.subtree_control")
	for _, controller := range []string{"cpu", "cpuset"} {
		if !l.cgroups.InUnified(controller) {
			continue
		}
		if err := os.WriteFile(file, []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("passing on controller %s: %w", controller, err)
		}
	}
	return nil
}

// inherit gives a cpuset of v1 what the one above has: a new one is empty and takes no process.
func inherit(hierarchy, dir string) error {
	if hierarchy != "cpuset" {
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		has, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(has)) > 0 {
			continue
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), bytes.TrimSpace(above), 0o644); err != nil {
			return err
		}
	}
	return nil
}

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
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("listing the processes of group %s of %s: %w", group, hierarchy, err)
			}
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Back moves a process to where it was. One that has ended is no error.
func (l *Local) Back(pid int, before map[string]string) error {
	var faults []error
	for hierarchy, group := range before {
		if err := l.move(hierarchy, group, pid); err != nil && !errors.Is(err, unix.ESRCH) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
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
	file, err := os.Open(l.host.Proc(strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("finding the groups of process %d: %w", pid, err)
	}
	defer func() { _ = file.Close() }()
	out := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("finding the groups of process %d: line %q; want number:controllers:group", pid, lines.Text())
		}
		if parts[1] == "" {
			parts[1] = host.Unified
		}
		for _, controller := range strings.Split(parts[1], ",") {
			out[controller] = parts[2]
		}
	}
	return out, nil
}

// Remove removes a group that Make made, once it is empty; one that is not there is no error.
func (l *Local) Remove(group string) error {
	var faults []error
	for _, hierarchy := range l.hierarchies {
		dir, err := l.cgroups.Dir(hierarchy, group)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = unix.Rmdir(dir)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("removing group %s of %s: %w", group, hierarchy, err))
		}
	}
	return errors.Join(faults...)
}
