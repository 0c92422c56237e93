package fastpath

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// arrive opens a server's group, or moves it, and puts it under watch on its core.
func (e *Engine) arrive(en *entry) error {
	c := e.cores[en.spec.Core]
	switch {
	case c == nil:
		return fmt.Errorf("core %d takes no real-time work; want one of %v", en.spec.Core, e.Cores)
	case en.spec.Cgroup == "":
		return errNotRunning
	case en.group != nil:
		if err := e.move(en, c.id); err != nil {
			if errors.Is(err, actuator.ErrGone) {
				e.lose(en, err)
			}
			return fmt.Errorf("moving to core %d: %w", c.id, err)
		}
		en.last = nil
	default:
		if err := e.open(en); err != nil {
			return err
		}
	}
	return e.attach(en, c)
}

// open a server's group. One that was let go of to be opened anew, or comes from another core, gets no more than it had, nor than a container may
// begin with; else it has what is in force.
func (e *Engine) open(en *entry) error {
	server := e.actuatorServer(en.spec)
	had := en.had
	if had.windowUs == 0 {
		had = e.elsewhere(en.spec)
	}
	if us := had.of(en.spec); us > 0 {
		server.BudgetUs = min(us, e.first(en.spec), server.HighUs)
	}
	group, err := e.Backend.Open(server)
	if err != nil {
		return err
	}
	if err := e.Programs.Track(group.ID(), en.slot); err != nil {
		return errors.Join(fmt.Errorf("watching: %w", err), group.Close(true))
	}
	en.group, en.last, en.sized, en.had = group, nil, server.HighUs, share{}
	return nil
}

// elsewhere is what a group that is not open has in force on another core than that of its server, as a former process left it: the room of a raise was
// that core's. Opening tells of what cannot be read.
func (e *Engine) elsewhere(s table.Server) share {
	held, cores, err := e.Backend.InForce(s.Cgroup)
	if err != nil || held.RuntimeUs <= 0 || slices.Equal(cores, []int{s.Core}) {
		return share{}
	}
	return share{budgetUs: held.RuntimeUs * s.PeriodUs / held.PeriodUs, windowUs: windowOf(s)}
}

// stay has a server governed where it is, while it cannot come to the core that the table sends it to: what is in force there is in force.
func (e *Engine) stay(en *entry) {
	if en.core == nil && en.group != nil && en.last != nil {
		en.fault = errors.Join(en.fault, e.attach(en, en.last))
	}
	if en.core != nil {
		en.fault, en.moveFault = nil, en.fault
	}
}

// home says that a server is governed on the core that the table sends it to.
func (en *entry) home() bool { return en.core != nil && en.core.id == en.spec.Core }

// leaves says that a server is still governed where it was and its move was not refused. A server whose move was refused
// stays for an unknown time.
func (en *entry) leaves() bool { return en.core != nil && !en.home() && en.moveFault == nil }

// move brings an open group to another core, with no more than it may begin with there: the room of a raise was that of
// the core which it leaves. That core raises it no more, and keeps its room: a move may take long, and the kernel may
// refuse it. While a server is cut for the move, no core governs it. If the kernel refuses the move, the server has at
// once what the table grants it, and its core learns that from the group.
func (e *Engine) move(en *entry, core int) error {
	if c := en.core; c != nil {
		c.hold(en.slot, true)
		defer c.hold(en.slot, false)
	}
	budget, _, err := en.group.Read()
	if err != nil {
		return err
	}
	first := e.first(en.spec)
	if budget.RuntimeUs > first {
		e.detach(en)
		if err := en.group.Set(first); err != nil {
			return fmt.Errorf("cutting the budget to %d us first: %w", first, err)
		}
	}
	err = en.group.Move(core)
	if err == nil {
		e.detach(en)
		return nil
	}
	if before := min(budget.RuntimeUs, en.spec.LeastUs); budget.RuntimeUs > first && before > first {
		_ = en.group.Set(before) // else its governor tries
	}
	return err
}
