package actuator

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// machine is what all backends share: the hierarchies, the kernel, the journal. mu guards the slow side.
type machine struct {
	mu      sync.Mutex
	host    host.Host
	cg      host.Cgroups
	kernel  kernel
	journal *journal
	now     func() int64
	cores   []int
	// rooms are servers whose group is to come, by path; came is when it was first seen to be there.
	rooms map[string]room
	came  map[string]int64
	// failed is since when Open of a group fails.
	failed map[string]int64
	// making are threads that may be making others with a policy of ours, by the inode of the group that they were let go of with.
	making map[uint64]*makers
	// scratch is where backends are tried out.
	scratch string
	// step is told what is done next where that may take long.
	step func(what string)
	// tids and buf are memory for lists of threads.
	tids []int32
	buf  []byte
}

// at opens the directory of a group in a controller's hierarchy. ErrGone, wrapped, when it is not there.
func (m *machine) at(controller, group string) (files, error) {
	dir, err := m.cg.Dir(controller, group)
	if err != nil {
		return nil, asGone(err)
	}
	f, err := m.kernel.open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening control group %s: %w", group, asGone(err))
	}
	return f, nil
}

func asGone(err error) error {
	if gone(err) && !errors.Is(err, ErrGone) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// in runs a function on the directory of a group.
func (m *machine) in(controller, group string, do func(files) error) error {
	f, err := m.at(controller, group)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.close())
}

// target is a group's directory in a hierarchy, held open.
type target struct {
	controller, group string
	files
}

// keep writes what files of the group hold into the journal, before the first of them is changed.
func (m *machine) keep(t target, names ...string) error {
	var records []record
	for _, name := range names {
		before, err := t.read(name)
		if err != nil {
			return fmt.Errorf("reading %s of %s: %w", name, t.group, asGone(err))
		}
		records = append(records, record{Controller: t.controller, Group: t.group, Inode: t.id(), File: name, Before: m.pristine(t, name, before)})
	}
	return m.journal.keep(records...)
}

// set writes a file of a group and reads it back; nothing is written when it holds the value already.
func (m *machine) set(t target, name, value string) error {
	held, err := t.read(name)
	if err != nil {
		return fmt.Errorf("reading %s of %s: %w", name, t.group, asGone(err))
	}
	if held == value {
		return nil
	}
	if err := m.keep(t, name); err != nil {
		return err
	}
	if err := t.write(name, value+"\n"); err != nil {
		return describe(t.group, name, value, err)
	}
	held, err = t.read(name)
	if err != nil {
		return fmt.Errorf("reading back %s of %s: %w", name, t.group, asGone(err))
	}
	if held != value {
		return fmt.Errorf("writing %q to %s of %s: it reads back as %q", value, name, t.group, held)
	}
	return nil
}

// above are the groups between the root, which is not one of them, and a group: the highest first.
func above(group string) []string {
	var out []string
	for dir := path.Dir(group); dir != "/" && dir != "."; dir = path.Dir(dir) {
		out = append([]string{dir}, out...)
	}
	return out
}

// below says that a group is within another.
func below(group, level string) bool { return strings.HasPrefix(group, level+"/") }

// backOff are the pauses between attempts at what the kernel refuses while it still tears down removed
// groups: 14 to 44 ms as a rule, more for a container's.
var backOff = []time.Duration{5, 10, 20, 40, 80, 100}

// patiently repeats what is refused for want of room, until it succeeds or worth says that waiting
// cannot help.
func (m *machine) patiently(do func() error, worth func() bool) error {
	err := do()
	for _, ms := range backOff {
		if !errors.Is(err, ErrNoRoom) || !worth() {
			return err
		}
		m.kernel.pause(ms * time.Millisecond)
		err = do()
	}
	return err
}
