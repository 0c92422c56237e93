package actuator

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// whereabouts is the directory of a group that its path may name no longer, however often it or one above was renamed. The kernel renames
// a group only in a hierarchy of v1, and only within the one above it, so it is as deep as it was, most likely below the last group of its
// path that is there; but that one may have been made anew under the name of the one that it is in.
func (m *machine) whereabouts(controller, group string, inode uint64) (string, error) {
	nowhere := fmt.Errorf("%s is nowhere: %w", group, ErrGone)
	if m.cg.InUnified(controller) {
		return "", nowhere
	}
	dir, err := m.cg.Dir(controller, "/")
	if err != nil {
		return "", asGone(err)
	}
	names := strings.Split(strings.Trim(group, "/"), "/")
	from := []string{dir}
	for _, name := range names[:len(names)-1] {
		dir = filepath.Join(dir, name)
		if _, err := m.kernel.inode(dir); err != nil {
			break
		}
		from = append(from, dir)
	}
	sought := ""
	for level, dir := range slices.Backward(from) {
		if found := m.seek(dir, sought, len(names)-level, inode); found != "" {
			return found, nil
		}
		sought = dir
	}
	return "", nowhere
}

// seek a group by its inode, so many levels below a directory, but not in the one that was sought through; empty when it is not there.
func (m *machine) seek(dir, sought string, depth int, inode uint64) string {
	names, err := m.kernel.children(dir)
	if err != nil {
		return "" // it is being removed
	}
	for _, name := range names {
		child := filepath.Join(dir, name)
		if child == sought {
			continue
		}
		if depth > 1 {
			if found := m.seek(child, sought, depth-1, inode); found != "" {
				return found
			}
		} else if held, err := m.kernel.inode(child); err == nil && held == inode {
			return child
		}
	}
	return ""
}

// place is a group's directory in a hierarchy, by the hierarchy's root and its own inode.
type place struct {
	root  string
	inode uint64
}

// places are where the groups of one release are, each sought once however many records tell of it: empty is nowhere.
type places struct {
	*machine
	found map[place]string
}

// open the very directory that a record tells of, also under another name. ErrGone, wrapped, when it was removed.
func (p places) open(r record) (files, error) {
	f, err := p.at(r.Controller, r.Group)
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
	dir, err := p.whereabouts(r)
	if err != nil {
		return nil, err
	}
	if f, err = p.kernel.open(dir); err != nil {
		return nil, fmt.Errorf("opening control group %s, once %s: %w", dir, r.Group, asGone(err))
	}
	return f, nil
}

// whereabouts is the machine's, asked once for each group.
func (p places) whereabouts(r record) (string, error) {
	root, err := p.cg.Dir(r.Controller, "/")
	if err != nil {
		return "", asGone(err)
	}
	at := place{root, r.Inode}
	dir, sought := p.found[at]
	if !sought {
		if dir, err = p.machine.whereabouts(r.Controller, r.Group, r.Inode); err != nil && !gone(err) {
			return "", err
		}
		p.found[at] = dir
	}
	if dir == "" {
		return "", fmt.Errorf("%s is nowhere: %w", r.Group, ErrGone)
	}
	return dir, nil
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
