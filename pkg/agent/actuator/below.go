package actuator

import (
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
	threads, left := 0, []string{a.dir}
	for looked := 0; len(left) > 0 && looked <= belowGroups; looked++ {
		dir := left[0]
		names, err := a.machine.kernel.children(dir)
		if err != nil && !gone(err) {
			return 0, fmt.Errorf("listing the groups of %s: %w", dir, err)
		}
		left = left[1:]
		for _, name := range names {
			left = append(left, path.Join(dir, name))
		}
		if dir == a.dir {
			continue
		}
		n, err := a.machine.threadsIn(dir)
		if err != nil {
			return 0, err
		}
		threads += n
	}
	return threads, nil
}

// threadsIn counts the threads of the group of a directory; none when it has gone.
func (m *machine) threadsIn(dir string) (int, error) {
	f, err := m.kernel.open(dir)
	if err == nil {
		var n int
		n, err = m.countThreads(f)
		if closed := f.close(); err == nil {
			err = closed
		}
		if err == nil {
			return n, nil
		}
	}
	if gone(asGone(err)) {
		return 0, nil
	}
	return 0, fmt.Errorf("listing the threads of %s: %w", dir, err)
}
