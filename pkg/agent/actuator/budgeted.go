package actuator

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// traits are what a backend says of itself.
type traits struct {
	name, guarantee, identity, policy string
	source                            uint32
}

func (t traits) Name() string       { return t.name }
func (t traits) Guarantee() string  { return t.guarantee }
func (t traits) Source() uint32     { return t.source }
func (t traits) Identity() string   { return t.identity }
func (t traits) Policy() string     { return t.policy }
func (t traits) ReservedOnly() bool { return false }

// budgeted is a backend whose kernel enforces budgets of groups: rtgroup and hcbs.
type budgeted struct {
	traits
	*levels
	groups map[string]*budgetedGroup
}

func newBudgeted(m *machine, t traits, bw bandwidth) *budgeted {
	return &budgeted{traits: t, levels: newLevels(m, bw), groups: map[string]*budgetedGroup{}}
}

// Capacity is what the kernel gives groups, less what groups of others hold and a reserve for rounding.
func (b *budgeted) Capacity(cores []int) map[int]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[int]int64, len(cores))
	for _, core := range cores {
		out[core] = b.capacity(core, len(cores))
	}
	return out
}

func (b *budgeted) capacity(core, cores int) int64 {
	root, err := b.root(core)
	if err != nil {
		return 0
	}
	free := root.RuntimeUs * million / root.PeriodUs
	foreign, err := b.foreign("/", core, b.sized())
	if err != nil {
		return 0
	}
	for _, f := range foreign {
		free -= (f.RuntimeUs*million + f.PeriodUs - 1) / f.PeriodUs
	}
	free -= roundingPpm
	if !b.bw.perCore() {
		free /= int64(max(cores, 1))
	}
	return max(0, min(free, theta(b.host, core)))
}

// Room makes the levels above a future group large enough.
func (b *budgeted) Room(s Server) (table.First, error) {
	if err := s.validate(); err != nil {
		return table.First{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, open := b.servers[s.Cgroup]; open {
		return b.bw.first(s), nil
	}
	err := b.expect(s)
	if err == nil {
		err = b.makeWay(s)
	}
	if err != nil {
		delete(b.rooms, s.Cgroup)
		b.retreat(s.Cgroup)
		return table.First{}, fmt.Errorf("making room for %s: %w", s.Cgroup, err)
	}
	return b.bw.first(s), nil
}

// claimRoom makes way for a server, or where the pot does not have its high budget, for what is left of the pot if that
// is as much as it has now: better a container that can be raised less than none. It returns the high budget that there is room for.
func (b *budgeted) claimRoom(s Server, leastUs int64) (int64, error) {
	b.servers[s.Cgroup] = s
	b.arrived(s.Cgroup)
	err := b.makeWay(s)
	if !errors.Is(err, ErrNoRoom) {
		return s.HighUs, err
	}
	delete(b.servers, s.Cgroup)
	less := s
	less.HighUs = min(s.HighUs, b.spare(s))
	if less.HighUs < max(1, leastUs) {
		return 0, err
	}
	b.servers[s.Cgroup] = less
	return less.HighUs, b.makeWay(less)
}

// makeWay grows the levels; while the kernel refuses though its files say that there is room, removed
// groups are still being torn down.
func (b *budgeted) makeWay(s Server) error {
	return b.patiently(
		func() error { return b.grow(s.Cgroup, s.Core) },
		func() bool { return b.fits(s.Core) },
	)
}

// spare is the largest high budget that a server which is not counted yet can be given on what is left of the pot.
func (b *budgeted) spare(s Server) int64 {
	root, err := b.root(s.Core)
	if err != nil {
		return 0
	}
	need, err := b.taken(s.Core, windowUs)
	if err != nil {
		return 0
	}
	free := root.RuntimeUs*windowUs/root.PeriodUs - need - windowUs*roundingPpm/million
	return max(0, b.bw.most(free, windowUs, s.PeriodUs))
}

// fits says that what the top groups need together is there by the kernel's files.
func (b *budgeted) fits(core int) bool {
	root, err := b.root(core)
	if err != nil {
		return false
	}
	need, err := b.taken(core, windowUs)
	return err == nil && need <= root.RuntimeUs*windowUs/root.PeriodUs
}

// root is what the whole tree may have; where the root group has no file, what the kernel leaves to real-time tasks.
func (b *budgeted) root(core int) (Budget, error) {
	root, err := b.budget("/", core)
	if errors.Is(err, fs.ErrNotExist) {
		root.RuntimeUs, root.PeriodUs, err = b.host.RTLimits()
	}
	if err == nil && root.RuntimeUs < 0 {
		return root, errors.New("the root group has no budget for the groups below it")
	}
	return root, err
}

// Open takes a group over.
func (b *budgeted) Open(s Server) (Group, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.groups[s.Cgroup]; old != nil {
		if err := old.letGo(); err != nil {
			return nil, err
		}
	}
	g, err := b.take(s)
	if b.opened(s.Cgroup, err); err != nil {
		delete(b.servers, s.Cgroup)
		b.retreat(s.Cgroup)
		return nil, fmt.Errorf("opening %s: %w", s.Cgroup, err)
	}
	b.groups[s.Cgroup] = g
	b.uses(b.servers[s.Cgroup])
	return g, nil
}

func (b *budgeted) take(s Server) (*budgetedGroup, error) {
	a, err := b.anchor(b.bw.controller(), s.Cgroup, b.bw.names()...)
	if err != nil {
		return nil, err
	}
	g := &budgetedGroup{backend: b, anchor: a}
	if err := g.start(s); err != nil {
		return nil, errors.Join(err, a.letGo())
	}
	return g, nil
}

// Sweep settles what no open group needs.
func (b *budgeted) Sweep() ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	forgot, err := b.forgetRooms()
	err = errors.Join(err, b.journal.mend())
	if !forgot && err == nil && b.now() < b.settleAt {
		return nil, nil
	}
	did, settled := b.settle()
	return did, errors.Join(err, settled)
}

// Restore lets go of all groups and puts everything back.
func (b *budgeted) Restore() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var faults []error
	for _, g := range b.groups {
		faults = append(faults, g.letGo())
	}
	clear(b.rooms)
	clear(b.servers)
	return errors.Join(append(faults, b.wholly(func() error { _, err := b.settle(); return err }))...)
}

// claim books an open server on a core.
func (b *budgeted) claim(group string, core int) {
	s := b.servers[group]
	s.Core = core
	b.servers[group] = s
}
