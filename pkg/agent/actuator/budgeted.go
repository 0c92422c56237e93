package actuator

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

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
func (t traits) Unenforced() error  { return nil }

// budgeted is a backend whose kernel enforces budgets of groups: rtgroup and hcbs.
type budgeted struct {
	traits
	*levels
	groups map[string]*budgetedGroup
}

func newBudgeted(m *machine, t traits, bw bandwidth) *budgeted {
	return &budgeted{traits: t, levels: newLevels(m, bw), groups: map[string]*budgetedGroup{}}
}

// Unenforced is for budgets of real-time groups: those of cfs are not turned off with them.
func (b *budgeted) Unenforced() error {
	if b.name == CFS {
		return nil
	}
	err := b.throttles()
	if r := (refusal{}); errors.As(err, &r) {
		return fmt.Errorf("%w: no budget is enforced until it is set again (%s)", err, r.fix)
	}
	return err
}

// Capacity is what the kernel gives groups, less what groups of others hold and a reserve for rounding; none while it enforces nothing.
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
	if err != nil || b.Unenforced() != nil {
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
	if err := b.makeRoom(s); err != nil {
		b.retreat(s.Cgroup)
		return table.First{}, errors.Join(fmt.Errorf("making room for %s: %w", s.Cgroup, err), b.void(s.Cgroup))
	}
	return b.bw.first(s), nil
}

// makeRoom notes a server whose group is to come and makes way for it, or where the pot does not have its high budget, for what is left of
// the pot if that is as much as it begins with: see claimRoom, which asks for the rest.
func (b *budgeted) makeRoom(s Server) error {
	err := b.noteAndMakeWay(s)
	if !errors.Is(err, ErrNoRoom) {
		return err
	}
	less := s
	less.HighUs = min(s.HighUs, b.spare(s))
	if less.HighUs < max(1, s.BudgetUs) {
		return err
	}
	if err := b.forget(s.Cgroup); err != nil {
		return err
	}
	return b.noteAndMakeWay(less)
}

func (b *budgeted) noteAndMakeWay(s Server) error {
	if err := b.expect(s, b.bw.names()...); err != nil {
		return err
	}
	return b.makeWay(s)
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

// spare is the largest high budget that a server which is not open can be given on what is left of the pot. Neither the room that was noted for it
// nor the budget that its group has already is of others.
func (b *budgeted) spare(s Server) int64 {
	nothing := s
	nothing.HighUs = 0
	b.servers[s.Cgroup] = nothing
	defer delete(b.servers, s.Cgroup)
	root, err := b.root(s.Core)
	if err != nil {
		return 0
	}
	need, err := b.taken(s.Core, windowUs)
	if err != nil {
		return 0
	}
	need -= b.bw.share(demand{0, s.PeriodUs}, windowUs)
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
	if fails := b.opened(s.Cgroup, err); err != nil {
		if fails {
			b.uses(s) // what it was started with, while that is tried again
		}
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

// Spare leaves these groups as they are for as long as they are there. What is in force keeps each of them to a budget
// that its core was promised. Taking a group's budget takes the real-time policy of its threads with it, for good where
// they have it of their own.
func (b *budgeted) Spare(groups []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.named(groups)
	if !slices.Equal(b.unopened, groups) {
		b.unopened, b.settleAt = groups, b.now()
	}
}

// InForce reads the budget of a group that is not open, on the core that its cpuset has.
func (b *budgeted) InForce(group string) (Budget, []int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var cores []int
	err := b.inCpuset(group, func(t target) (err error) {
		cores, err = readCPUs(t, cpusetCPUs)
		return err
	})
	if err != nil {
		return Budget{}, nil, err
	}
	held, err := b.budget(group, firstOf(cores))
	return held, cores, err
}

// Sweep settles what no open group needs.
func (b *budgeted) Sweep() ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	forgot, err := b.forgetRooms()
	for _, r := range forgot {
		if b.there(r.Cgroup) && !r.void {
			b.uses(r.Server) // what it was started with
		}
	}
	err = errors.Join(err, b.journal.mend())
	if len(forgot) == 0 && err == nil && b.now() < b.settleAt {
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
	faults = append(faults, b.voidRooms())
	clear(b.servers)
	b.unopened = nil
	return errors.Join(append(faults, b.wholly(func() error { _, err := b.settle(); return err }))...)
}

// claim books an open server on a core.
func (b *budgeted) claim(group string, core int) {
	s := b.servers[group]
	s.Core = core
	b.servers[group] = s
}
