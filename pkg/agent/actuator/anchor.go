package actuator

import (
	"errors"
	"fmt"
	"strings"
)

// anchor holds a container's group: its directories in the two hierarchies that matter and the files that are read every
// second, so that a look costs a system call for each.
type anchor struct {
	files
	cpus files
	path string
	// dir and cpusDir are where both were opened, controller the former's.
	dir, cpusDir, controller string
	machine                  *machine
	// streak is in how many checks on end something had been changed.
	streak int
	// rest is how many checks pass before threads are looked for outside the group's cpuset, see gather.
	rest int
}

// Something that changes a group again and again is not fought for ever: after contested checks on end only every
// contestedEvery-th sets right what differs.
const (
	contested      = 10
	contestedEvery = 60
)

// contest says whether what differs should be set right now; where not, the error says that something else
// keeps changing the group.
func (a *anchor) contest(drift []string) error {
	if len(drift) == 0 {
		a.streak = 0
		return nil
	}
	if a.streak++; a.streak <= contested || a.streak%contestedEvery == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrContested, strings.Join(drift, "; "))
}

// anchor opens a group in a controller's hierarchy and in cpuset's; names are files of the former that are
// read often.
func (m *machine) anchor(controller, group string, names ...string) (*anchor, error) {
	dir, err := m.cg.Dir(controller, group)
	if err != nil {
		return nil, asGone(err)
	}
	cpusDir, err := m.cg.Dir("cpuset", group)
	if err != nil {
		return nil, asGone(err)
	}
	f, err := m.at(controller, group)
	if err != nil {
		return nil, err
	}
	a := &anchor{files: f, path: group, dir: dir, cpusDir: cpusDir, controller: controller, machine: m}
	if a.cpus, err = m.at("cpuset", group); err != nil {
		return nil, errors.Join(err, f.close())
	}
	f.keep(names...)
	a.cpus.keep(cpusetCPUs)
	m.releaseFormer(a)
	return a, nil
}

// still says that the path names the group that was opened, in both hierarchies.
func (a *anchor) still() error {
	if err := a.stillAt(a.dir, a.controller, a.files); err != nil || a.cpusDir == a.dir {
		return err
	}
	return a.stillAt(a.cpusDir, "cpuset", a.cpus)
}

func (a *anchor) stillAt(dir, controller string, opened files) error {
	inode, err := a.machine.kernel.inode(dir)
	if err == nil && inode == opened.id() {
		return nil
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("looking for %s: %w", a.path, err)
	}
	// Seeking it looks at every group of the machine. One that was removed lists nothing.
	if _, listed := a.machine.threadsOf(opened); !gone(listed) {
		if now, lost := a.machine.whereabouts(controller, a.path, opened.id()); lost == nil {
			return fmt.Errorf("%s is %s now: %w", a.path, now, ErrRenamed)
		}
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", a.path, asGone(err))
	}
	return fmt.Errorf("%s is another group than the one that was opened: %w", a.path, ErrGone)
}

// cores are those that the group's cpuset names.
func (a *anchor) cores() ([]int, error) { return readCPUs(a.cpus, cpusetCPUs) }

func (a *anchor) letGo() error { return errors.Join(a.close(), a.cpus.close()) }
