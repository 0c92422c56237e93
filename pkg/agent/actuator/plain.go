package actuator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// plain is what backends share that work on threads instead of on budgets of groups.
type plain struct {
	traits
	*machine
	// open groups by path. Every one was placed on its core.
	open map[string]threaded
}

// placing says why such a backend cannot keep a server on its core. The other backends write to a group for their trial.
// These would be chosen, and have their cores offered, on a machine where they cannot place a server.
func (m *machine) placing() error {
	if !m.cg.Has("cpuset") {
		return errNoCpuset
	}
	root, err := m.cg.Dir("cpuset", "/")
	if err != nil {
		return err
	}
	if err := m.kernel.writable(root); err != nil {
		return m.refused(fmt.Errorf("control groups of cpuset cannot be written to: %w", err))
	}
	return nil
}

// threaded is an open group of such a backend.
type threaded interface {
	Group
	// letGo of descriptors.
	letGo() error
}

func newPlain(m *machine, t traits) plain {
	return plain{traits: t, machine: m, open: map[string]threaded{}}
}

// Capacity of each core: what the kernel leaves real-time tasks.
func (p *plain) Capacity(cores []int) map[int]int64 { return capacity(p.host, cores) }

// Room: nothing above a container has to be sized, and a runtime has nothing to write.
func (p *plain) Room(s Server) (table.First, error) {
	if err := s.validate(); err != nil {
		return table.First{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[s.Cgroup] != nil {
		return table.First{}, nil
	}
	return table.First{}, p.expect(s)
}

// take opens a group, in place of one that was opened before by the same path.
func (p *plain) take(s Server, start func(*anchor) (threaded, error)) (Group, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.open[s.Cgroup]; old != nil {
		if err := p.drop(s.Cgroup); err != nil {
			return nil, err
		}
	}
	g, err := p.startOn(s, start)
	if p.opened(s.Cgroup, err); err != nil {
		return nil, fmt.Errorf("opening %s: %w", s.Cgroup, err)
	}
	p.arrived(s.Cgroup)
	p.open[s.Cgroup] = g
	return g, nil
}

func (p *plain) startOn(s Server, start func(*anchor) (threaded, error)) (threaded, error) {
	a, err := p.anchor(p.hierarchy(), s.Cgroup)
	if err != nil {
		return nil, err
	}
	if err := p.place(s.Cgroup, s.Core); err != nil {
		return nil, errors.Join(err, a.letGo())
	}
	g, err := start(a)
	if err != nil {
		return nil, errors.Join(err, a.letGo())
	}
	return g, nil
}

// hierarchy is where the group's threads are listed.
func (p *plain) hierarchy() string { return p.identity }

// drop lets go of an open group.
func (p *plain) drop(group string) error {
	g := p.open[group]
	delete(p.open, group)
	return g.letGo()
}

// Sweep puts back what no open group needs.
func (p *plain) Sweep() ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.forgetRooms()
	err = errors.Join(err, p.journal.mend())
	var did []string
	for _, group := range p.unused() {
		did = append(did, "put back "+group)
	}
	return did, errors.Join(err, p.settle())
}

// unused are the groups of the journal that are neither open nor above an open one.
func (p *plain) unused() []string {
	return slices.DeleteFunc(p.journal.groups(), func(group string) bool {
		_, expected := p.rooms[group]
		return expected || p.inUse(group) || p.spared(group)
	})
}

// sparedFor is how long a group whose Open failed is left as it is. Its server is in the table and the fast path tries
// again. What is in force until then may be less than was asked for, but is not nothing. No process ends its budgets
// meanwhile, so repeated attempts do not extend the time.
const sparedFor = time.Minute

// spared says that Open of a group, or of one below it, fails since a short time ago.
func (p *plain) spared(group string) bool {
	for path, since := range p.failed {
		if p.now()-since <= sparedFor.Nanoseconds() && (path == group || below(path, group)) {
			return true
		}
	}
	return false
}

// Spare only ends the wait for groups that the table does not name any more. A group that the table names and that is
// there has arrived.
func (p *plain) Spare(groups []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.named(groups)
	for _, group := range groups {
		if p.there(group) {
			p.arrived(group)
		}
	}
}

// InForce is nothing: no process ends the budgets of a group that is not open.
func (p *plain) InForce(string) (Budget, []int, error) { return Budget{}, nil, nil }

// inUse says that a group is open, or above one that is.
func (p *plain) inUse(group string) bool {
	for path := range p.open {
		if path == group || below(path, group) {
			return true
		}
	}
	return false
}

func (p *plain) settle() error {
	var faults []error
	for _, group := range p.unused() {
		if err := p.release(group); err != nil {
			faults = append(faults, fmt.Errorf("settling %s: %w", group, err))
		}
	}
	return errors.Join(faults...)
}

// Restore lets go of all groups and puts everything back.
func (p *plain) Restore() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.named(nil)
	var faults []error
	for group := range p.open {
		faults = append(faults, p.drop(group))
	}
	faults = append(faults, p.voidRooms())
	return errors.Join(append(faults, p.wholly(p.settle))...)
}

// closeGroup is Close of a group.
func (p *plain) closeGroup(group string, g threaded, restore bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[group] != g {
		return nil
	}
	err := p.drop(group)
	if !restore {
		return err
	}
	err = errors.Join(err, p.release(group))
	for _, level := range slices.Backward(above(group)) {
		if p.inUse(level) || p.journaledBelow(level) {
			break
		}
		err = errors.Join(err, p.release(level))
	}
	return err
}

// same says that a group is open, and that its path names it.
func (p *plain) same(g threaded, a *anchor) error {
	if p.open[a.path] != g {
		return fmt.Errorf("%s was closed: %w", a.path, ErrGone)
	}
	return a.still()
}

// replaced puts a group, and every thread of it, back on its core when it is not there, and says so.
func (p *plain) replaced(a *anchor, core int) (drift []string, err error) {
	cores, err := a.cores()
	if err != nil {
		return nil, err
	}
	if !slices.Equal(cores, []int{core}) {
		drift = []string{fmt.Sprintf("cores of %s were %v; want %d", a.path, cores, core)}
		a.rest = 0
	}
	if err := a.contest(drift); err != nil {
		return drift, err
	}
	if len(drift) > 0 {
		if err := p.place(a.path, core); err != nil {
			return drift, err
		}
	}
	moved, err := a.gather()
	return append(drift, moved...), err
}

// threads counts those of an open group.
func (p *plain) threads(g threaded, a *anchor) (all, realtime int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.same(g, a); err != nil {
		return 0, 0, err
	}
	return p.countRealtime(a)
}
