package actuator

import (
	"errors"
	"slices"
)

// Resize the room above for another high budget: the budget in force, and all that is known of the group, stays. Where the pot has not the room it
// gets what is left, as when it is opened, and Check asks for the rest.
func (g *budgetedGroup) Resize(highUs int64) error {
	b := g.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := g.still(); err != nil {
		return err
	}
	former := b.servers[g.path]
	wanted := former
	wanted.HighUs = highUs
	high, err := b.claimRoom(wanted, min(g.intent.Load(), highUs))
	if err != nil {
		b.servers[g.path] = former
		b.retreat(g.path)
		return err
	}
	g.full = highUs
	g.high.Store(high)
	b.uses(b.servers[g.path])
	b.left(g.path) // the levels shrink, if that is less
	return nil
}

// claimThere makes way on the core that the group comes to: as when it is opened for what is left, if that is as much as it has. Others may be about to
// leave that core.
func (g *budgetedGroup) claimThere() error {
	wanted := g.backend.servers[g.path]
	wanted.HighUs = g.full
	high, err := g.backend.claimRoom(wanted, g.intent.Load())
	if err != nil {
		return err
	}
	g.high.Store(high)
	return g.assert()
}

// leave shrinks the levels above a group on a core that it has left, for those that come there. Where budgets are given per core levels only
// lend: nothing is charged to them that others could be stopped for.
func (l *levels) leave(group string, core int) error {
	var faults []error
	for _, level := range slices.Backward(above(group)) {
		surplus, err := l.surplus(level)
		if b, some := surplus[core]; some {
			err = l.inLevel(level, func(t target) error { return l.bw.write(l.machine, t, core, b) })
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// begins is what a group begins with: what was asked for, or what it holds, as a share of its core, as far as it may.
func (g *budgetedGroup) begins(s Server, held Budget) int64 {
	if s.BudgetUs != 0 {
		return s.BudgetUs
	}
	now := g.asked(held)
	if now.RuntimeUs > 0 && now.PeriodUs > 0 && now.PeriodUs != s.PeriodUs {
		now.RuntimeUs = now.RuntimeUs * s.PeriodUs / now.PeriodUs
	}
	return max(0, min(now.RuntimeUs, s.HighUs))
}
