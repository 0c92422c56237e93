package actuator

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// whereabouts is the directory of a group that its path may name no longer, however often it or one above was renamed. The kernel
// renames a group only within the one above it, so it is as deep as it was, below the last group of its path that is there.
func (m *machine) whereabouts(controller, group string, inode uint64) (string, error) {
	dir, err := m.cg.Dir(controller, "/")
	if err != nil {
		return "", asGone(err)
	}
	names := strings.Split(strings.Trim(group, "/"), "/")
	for ; len(names) > 1; names = names[1:] {
		next := filepath.Join(dir, names[0])
		if _, err := m.kernel.inode(next); err != nil {
			break
		}
		dir = next
	}
	if found := m.seek(dir, len(names), inode); found != "" {
		return found, nil
	}
	return "", fmt.Errorf("%s is nowhere: %w", group, ErrGone)
}

// seek a group by its inode, so many levels below a directory; empty when it is not there.
func (m *machine) seek(dir string, depth int, inode uint64) string {
	names, err := m.kernel.children(dir)
	if err != nil {
		return "" // it is being removed
	}
	for _, name := range names {
		child := filepath.Join(dir, name)
		if depth > 1 {
			if found := m.seek(child, depth-1, inode); found != "" {
				return found
			}
		} else if held, err := m.kernel.inode(child); err == nil && held == inode {
			return child
		}
	}
	return ""
}

// of opens the very directory that a record tells of, also under another name. ErrGone, wrapped, when it was removed.
func (m *machine) of(r record) (files, error) {
	f, err := m.at(r.Controller, r.Group)
	if err != nil && !gone(err) {
		return nil, err
	}
	if err == nil {
		if f.id() == r.Inode {
			return f, nil
		}
		if err := f.close(); err != nil {
			return nil, err
		}
	}
	dir, err := m.whereabouts(r.Controller, r.Group, r.Inode)
	if err != nil {
		return nil, err
	}
	if f, err = m.kernel.open(dir); err != nil {
		return nil, fmt.Errorf("opening control group %s, once %s: %w", dir, r.Group, asGone(err))
	}
	return f, nil
}

// releaseFormer puts back what was changed in groups that the path of one named before it. What cannot be put back now stays in the
// journal: it does not keep the container from its budget.
func (m *machine) releaseFormer(a *anchor) {
	former := slices.DeleteFunc(m.journal.of(a.path), func(r record) bool {
		return r.Controller == roomRecord || r.Inode == a.id() || r.Inode == a.cpus.id()
	})
	if len(former) > 0 {
		_ = m.releaseThese(a.path, former)
	}
}
