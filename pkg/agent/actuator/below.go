package actuator

import (
	"errors"
	"fmt"
	"path"
)

// belowGroups is how many groups below a container's own are looked at.
const belowGroups = 64

// Below counts the threads in groups that a container has made below its own, as an init system in it does: no backend
// governs them, and no program in the kernel sees them.
func (a *anchor) Below() (int, error) {
	a.machine.mu.Lock()
	defer a.machine.mu.Unlock()
	if err := a.still(); err != nil {
		return 0, err
	}
	dirs, err := a.tree()
	if err != nil {
		return 0, err
	}
	threads := 0
	for _, dir := range dirs[1:] {
		if err := a.machine.listIn(dir, func(tids []int32) { threads += len(tids) }); err != nil {
			return 0, err
		}
	}
	return threads, nil
}

// tree is the directory of the container's own group, and those of groups below it.
func (a *anchor) tree() ([]string, error) {
	dirs := []string{a.dir}
	for looked := 0; looked < len(dirs); looked++ {
		names, err := a.machine.kernel.children(dirs[looked])
		if err != nil && !gone(err) {
			return nil, fmt.Errorf("listing the groups of %s: %w", dirs[looked], err)
		}
		for _, name := range names {
			if len(dirs) <= belowGroups {
				dirs = append(dirs, path.Join(dirs[looked], name))
			}
		}
	}
	return dirs, nil
}

// listIn hands the threads of a directory's group over; none when it has gone.
func (m *machine) listIn(dir string, do func(tids []int32)) error {
	f, err := m.kernel.open(dir)
	if err == nil {
		var tids []int32
		if tids, err = m.threadsOf(f); err == nil {
			do(tids)
		}
		err = errors.Join(err, f.close())
	}
	if err != nil && !gone(asGone(err)) {
		return fmt.Errorf("listing the threads of %s: %w", dir, err)
	}
	return nil
}
