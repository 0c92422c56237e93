package actuator

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// budgetedGroup is a group whose budget the kernel enforces.
type budgetedGroup struct {
	*anchor
	backend *budgeted
	hot     atomic.Pointer[hotFile]
	// What is asked for. Set changes intent; the slow side the others, under the machine's lock.
	intent atomic.Int64
	// turn is odd while Set runs, and never the same again after it.
	turn     atomic.Uint64
	high     atomic.Int64 // what there is room for above
	full     int64        // what was asked for
	periodUs int64
	core     int
	closed   bool
}

// start brings the group to what a server asks for: room above, core, budget.
func (g *budgetedGroup) start(s Server) error {
	b := g.backend
	held, err := b.bw.parse(g.read, s.Core)
	if err != nil {
		return asGone(err)
	}
	g.periodUs, g.core, g.full = s.PeriodUs, s.Core, s.HighUs
	want := Budget{g.begins(s, held), s.PeriodUs}
	high, err := b.claimRoom(s, want.RuntimeUs)
	if err != nil {
		return err
	}
	g.high.Store(high)
	g.intent.Store(want.RuntimeUs)
	if err := b.patiently(func() error { return b.bw.write(b.machine, g.target(), s.Core, b.bw.shape(want)) },
		func() bool { return b.fits(s.Core) }); err != nil {
		return err
	}
	if err := b.place(s.Cgroup, s.Core); err != nil {
		return err
	}
	if _, err := g.clearStrays(); err != nil {
		return err
	}
	return g.heat()
}

// heat opens the file that Set writes to, in place of the former one.
func (g *budgetedGroup) heat() error {
	hot, err := g.backend.bw.hot(g.files, g.core, g.periodUs)
	if err != nil {
		return err
	}
	if old := g.hot.Swap(hot); old != nil {
		return old.close(g.backend.kernel.pause)
	}
	return nil
}

func (g *budgetedGroup) target() target { return target{g.backend.bw.controller(), g.path, g.files} }

// ID of the group in the cpu hierarchy.
func (g *budgetedGroup) ID() uint64 { return g.id() }

// Set writes the runtime. HOT: the levels above have room for anything up to the high budget.
func (g *budgetedGroup) Set(budgetUs int64) error {
	if budgetUs > g.high.Load() || budgetUs <= 0 {
		return ErrNoRoom
	}
	g.turn.Add(1)
	before := g.intent.Swap(budgetUs)
	err := g.hot.Load().set(budgetUs)
	if err != nil {
		g.intent.Store(before)
	}
	g.turn.Add(1)
	return err
}

// Read budget and cores from the kernel.
func (g *budgetedGroup) Read() (Budget, []int, error) {
	g.backend.mu.Lock()
	defer g.backend.mu.Unlock()
	held, cores, err := g.now()
	return g.asked(held), cores, err
}

func (g *budgetedGroup) now() (Budget, []int, error) {
	if err := g.still(); err != nil {
		return Budget{}, nil, err
	}
	held, err := g.backend.bw.parse(g.read, g.core)
	if err != nil {
		return Budget{}, nil, fmt.Errorf("reading the budget of %s: %w", g.path, err)
	}
	cores, err := g.cores()
	return held, cores, err
}

// want is the budget that the files should hold.
func (g *budgetedGroup) want() Budget {
	return g.backend.bw.shape(Budget{g.intent.Load(), g.periodUs})
}

// asked is what the files hold, in terms of the period that was asked for.
func (g *budgetedGroup) asked(held Budget) Budget {
	if held == g.want() {
		return Budget{g.intent.Load(), g.periodUs}
	}
	shaped := g.backend.bw.shape(Budget{0, g.periodUs}).PeriodUs
	if shaped == g.periodUs || held.PeriodUs != shaped || held.RuntimeUs < 0 {
		return held
	}
	return Budget{held.RuntimeUs * g.periodUs / shaped, g.periodUs}
}

// clearStrays takes budgets back on other cores, where a move that did not come to its end left them.
func (g *budgetedGroup) clearStrays() (drift []string, err error) {
	b := g.backend
	if !b.bw.perCore() {
		return nil, nil
	}
	for _, core := range b.cores {
		held, err := b.bw.parse(g.read, core)
		if err != nil {
			return drift, asGone(err)
		}
		if core == g.core || held.RuntimeUs == 0 {
			continue
		}
		drift = append(drift, fmt.Sprintf("%s had %d us on core %d too", g.path, held.RuntimeUs, core))
		if err := b.bw.write(b.machine, g.target(), core, Budget{0, held.PeriodUs}); err != nil {
			return drift, err
		}
	}
	return drift, nil
}

// still says that the group is open, and that its path names it.
func (g *budgetedGroup) still() error {
	if g.closed {
		return fmt.Errorf("%s was closed: %w", g.path, ErrGone)
	}
	return g.anchor.still()
}

// Check sets again what something else changed.
func (g *budgetedGroup) Check() (drift []string, err error) {
	b := g.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	held, cores, err := g.now()
	if err != nil {
		return nil, err
	}
	if want := g.want(); held != want && g.drifted(want) {
		drift = append(drift, fmt.Sprintf("budget of %s was %d of %d us; want %d of %d",
			g.path, held.RuntimeUs, held.PeriodUs, want.RuntimeUs, want.PeriodUs))
	}
	misplaced := !slices.Equal(cores, []int{g.core})
	if misplaced {
		drift = append(drift, fmt.Sprintf("cores of %s were %v; want %d", g.path, cores, g.core))
		g.rest = 0
	}
	if err := g.contest(drift); err != nil {
		return drift, err
	}
	if misplaced {
		err = b.place(g.path, g.core)
	}
	if len(drift) > 0 {
		err = errors.Join(err, b.grow(g.path, g.core), g.assert())
	}
	if err == nil {
		var moved []string
		moved, err = g.gather()
		drift = append(drift, moved...)
	}
	g.claimFull()
	strays, cleared := g.clearStrays()
	return append(drift, strays...), errors.Join(err, cleared)
}

// claimFull asks for the room that was not there when the group was opened.
func (g *budgetedGroup) claimFull() {
	b, s := g.backend, g.backend.servers[g.path]
	if s.HighUs == g.full {
		return
	}
	full := s
	full.HighUs = g.full
	b.servers[g.path] = full
	if b.fits(g.core) && b.grow(g.path, g.core) == nil {
		b.uses(full)
		g.high.Store(g.full)
		return
	}
	b.servers[g.path] = s
}

// drifted says that the budget is not what is asked for, and was not being set while we looked.
func (g *budgetedGroup) drifted(want Budget) bool {
	turn := g.turn.Load()
	held, err := g.backend.bw.parse(g.read, g.core)
	return err == nil && held != want && g.want() == want && turn%2 == 0 && g.turn.Load() == turn
}

// assert writes the budget that is asked for. Set may ask for another at the same time: then that one
// is written again, so that whichever write came last, the kernel has what was asked for last. While Set is called without a pause there
// is nothing to assert; the next Check looks again.
func (g *budgetedGroup) assert() error {
	const tries = 8
	for range tries {
		turn := g.turn.Load()
		want := g.want()
		if g.intent.Load() == 0 {
			return nil
		}
		err := g.backend.bw.write(g.backend.machine, g.target(), g.core, want)
		if turn%2 == 0 && g.turn.Load() == turn {
			return err
		}
	}
	return nil
}

// Move to another core: the budget there first, where budgets are given per core, then the core.
func (g *budgetedGroup) Move(core int) error {
	b := g.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := g.still(); err != nil {
		return err
	}
	from, before := g.core, b.servers[g.path]
	if err := g.moveTo(core); err != nil {
		g.core, b.servers[g.path] = from, before
		g.high.Store(before.HighUs)
		b.retreat(g.path)
		return errors.Join(fmt.Errorf("moving %s to core %d: %w", g.path, core, err), b.place(g.path, from))
	}
	if !b.bw.perCore() || from == core {
		return nil
	}
	err := errors.Join(g.heat(), g.assert(), b.bw.write(b.machine, g.target(), from, Budget{0, g.periodUs}))
	_ = b.leave(g.path, from) // what fails settling does
	return err
}

func (g *budgetedGroup) moveTo(core int) error {
	b := g.backend
	g.core = core
	b.claim(g.path, core)
	if b.bw.perCore() {
		if err := g.claimThere(); err != nil {
			return err
		}
	}
	return b.place(g.path, core)
}

// Threads in the group.
func (g *budgetedGroup) Threads() (all, realtime int, err error) {
	g.backend.mu.Lock()
	defer g.backend.mu.Unlock()
	if err := g.still(); err != nil {
		return 0, 0, err
	}
	all, realtime, err = g.backend.countRealtime(g.files)
	if err != nil {
		return 0, 0, fmt.Errorf("listing the threads of %s: %w", g.path, asGone(err))
	}
	return all, realtime, nil
}

// Close lets go of the group; its levels shrink once it needs them no more.
func (g *budgetedGroup) Close(restore bool) error {
	b := g.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.closed {
		return nil
	}
	err := g.letGo()
	if restore {
		err = errors.Join(err, b.releaseUp(g.path))
	}
	return err
}

// letGo closes the descriptors. No process governs the group then, and Sweep puts it back unless it is opened again.
func (g *budgetedGroup) letGo() error {
	b := g.backend
	if g.closed {
		return nil
	}
	g.closed = true
	if b.groups[g.path] == g {
		delete(b.groups, g.path)
		delete(b.servers, g.path)
		b.left(g.path)
	}
	return errors.Join(g.hot.Load().close(b.kernel.pause), g.anchor.letGo())
}
