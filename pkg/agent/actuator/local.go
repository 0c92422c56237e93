package actuator

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
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

// IDs are what a group is known by in each hierarchy: another of the same name has others.
type IDs map[string]uint64

// Make makes a group and those above it, unless they are there. They may use the cores and memory nodes of the group
// above.
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
			parent := dir
			dir = filepath.Join(dir, name)
			err := l.makeIn(hierarchy, parent, dir)
			if errors.Is(err, fs.ErrExist) {
				err = inherit(hierarchy, dir)
			}
			if err != nil {
				return fmt.Errorf("making group %s: %w", group, err)
			}
		}
	}
	return nil
}

// Create makes a group that is not there in a group that is. The error is fs.ErrExist when it is there, in any
// hierarchy: another process made it then, and it stays as it is.
func (l *Local) Create(group string) (IDs, error) {
	ids := IDs{}
	for _, hierarchy := range l.hierarchies {
		parent, err := l.cgroups.Dir(hierarchy, path.Dir(group))
		if err != nil {
			return nil, errors.Join(err, l.RemoveOwn(group, ids))
		}
		dir := filepath.Join(parent, path.Base(group))
		if err = l.makeIn(hierarchy, parent, dir); err == nil {
			ids[hierarchy], err = host.ID(dir)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("making group %s: %w", group, err), l.RemoveOwn(group, ids))
		}
	}
	return ids, nil
}

// makeIn makes the directory of a group in that of the group above.
func (l *Local) makeIn(hierarchy, parent, dir string) error {
	if err := l.prepare(hierarchy, parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return inherit(hierarchy, dir)
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

// Own says that every group of the name is the one that Create made, or is not there.
func (l *Local) Own(group string, ids IDs) (bool, error) {
	for _, hierarchy := range l.hierarchies {
		dir, err := l.cgroups.Dir(hierarchy, group)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		if id, err := host.ID(dir); err != nil || id != ids[hierarchy] {
			return false, err
		}
	}
	return true, nil
}

// Remove removes a group that Make made, once it is empty; one that is not there is no error.
func (l *Local) Remove(group string) error {
	return l.removeWhere(group, func(string, string) bool { return true })
}

// RemoveOwn removes what Create made of a group, once it is empty. One of the same name that others made stays.
func (l *Local) RemoveOwn(group string, ids IDs) error {
	return l.removeWhere(group, func(hierarchy, dir string) bool {
		id, err := host.ID(dir)
		return err == nil && id == ids[hierarchy]
	})
}

func (l *Local) removeWhere(group string, is func(hierarchy, dir string) bool) error {
	var faults []error
	for _, hierarchy := range l.hierarchies {
		dir, err := l.cgroups.Dir(hierarchy, group)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !is(hierarchy, dir) {
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
