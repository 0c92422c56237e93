package fastpath

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Sweep compares what is in force with what should be, sets it right, and tries again what failed.
func (e *Engine) Sweep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() { e.swept.Store(e.Now()) }()
	e.sweeps++
	e.stale.tell(e.Now())
	e.lookForEnforcement()
	again := false
	e.resize()
	for _, id := range slices.Sorted(maps.Keys(e.entries)) {
		en := e.entries[id]
		again = again || !en.home() && en.retryAt <= e.Now()
		if en.core == nil {
			continue
		}
		again = e.check(en) || again
	}
	for _, c := range e.cores {
		c.tick()
	}
	if again && !e.settle() {
		return
	}
	e.putBack()
}

// lookForEnforcement asks the backend whether budgets end: an administrator who turns that off does not ask the agent.
// The log tells when it changes.
func (e *Engine) lookForEnforcement() {
	before := e.unenforced
	switch e.unenforced = e.Backend.Unenforced(); {
	case before == nil && e.unenforced != nil:
		slog.Error("budgets are not enforced any more", "reason", e.unenforced)
	case before != nil && e.unenforced == nil:
		slog.Info("budgets are enforced again")
	}
}

// putBack has the backend put back what no server needs any more. Before the first table the engine does not know what
// is needed.
func (e *Engine) putBack() {
	if e.adopted {
		e.Backend.Spare(e.unopened())
		_, e.sweepFault = e.Backend.Sweep()
	}
}

// belowEvery is in which sweeps groups below a container's own are looked for: they seldom come and go.
const belowEvery = 10

// check looks after one server. It says whether the server has lost its place.
func (e *Engine) check(en *entry) bool {
	drift, err := en.group.Check()
	if errors.Is(err, actuator.ErrGone) {
		e.lose(en, err)
		return true
	}
	if len(drift) > 0 {
		en.drift++
	}
	en.checkFault = err
	en.count()
	en.undone = en.core.undone(en.slot, e.forgotten(en))
	if e.sweeps%belowEvery == 0 {
		if below, err := en.group.Below(); err == nil {
			en.below = below
		}
	}
	return false
}

// count a server's threads. Whose policies we have taken ourselves, for the rest of a window, are real-time all the same: Check, which
// has found nothing wrong, gives every thread of such a group the policy of the phase. That a server is stopped says nothing of the
// program, and some are at every sweep.
func (en *entry) count() {
	stopped, before := en.core.stopped(en.slot)
	all, realtime, err := en.group.Threads()
	if err != nil {
		return
	}
	if _, after := en.core.stopped(en.slot); (stopped || after != before) && en.checkFault == nil {
		realtime = all
	}
	en.threads, en.realtime = all, realtime
}

// forgotten is how many evasions of a server this sweep forgets: one in a second, and not more than one in a window, in which four
// are seen at most.
func (e *Engine) forgotten(en *entry) uint64 {
	if e.sweeps%uint64(max(1, en.spec.PeriodUs/SweepEvery.Microseconds())) != 0 {
		return 0
	}
	return 1
}

// Set puts one server's least budget in force by hand, until the next table.
func (e *Engine) Set(r client.SetRequest) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	en := e.find(r.Server)
	if en == nil {
		return &client.StatusError{Code: 404, Reason: fmt.Sprintf("server %q: no such server or container on this node", r.Server)}
	}
	if err := allowed(en.spec, r); err != nil {
		return &client.StatusError{Code: 409, Reason: err.Error()}
	}
	former, fault := e.table, en.fault
	t := former
	t.Servers = slices.Clone(t.Servers)
	i := slices.IndexFunc(t.Servers, func(s table.Server) bool { return s.ID == en.spec.ID })
	t.Servers[i].LeastUs = r.RuntimeUs
	if err := e.try(en, t); err != nil {
		en.fault = fault
		return errors.Join(err, e.adopt(former))
	}
	return nil
}

// try adopts a table and keeps it, unless the server is not granted what the table says. It is kept last: what was
// refused must not be carried out by a successor.
func (e *Engine) try(en *entry, t table.Table) error {
	if err := e.adopt(t); err != nil {
		return err
	}
	if en.fault != nil {
		return &client.StatusError{Code: 409, Reason: en.fault.Error()}
	}
	return e.store.save(kept{Table: t})
}

// find is the server of an ID or a container ID, whole; nil when there is none.
func (e *Engine) find(name string) *entry {
	if name == "" {
		return nil
	}
	if en := e.entries[name]; en != nil {
		return en
	}
	for _, en := range e.entries {
		if en.spec.ContainerID == name {
			return en
		}
	}
	return nil
}

// allowed says why a server may not have a budget.
func allowed(s table.Server, r client.SetRequest) error {
	switch {
	case r.PeriodUs != 0 && r.PeriodUs != s.PeriodUs:
		return fmt.Errorf("period %d us; want that of the admitted server, %d us", r.PeriodUs, s.PeriodUs)
	case r.RuntimeUs < s.LowUs || r.RuntimeUs > s.HighUs:
		return fmt.Errorf("runtime %d us; want %d us to %d us, what the server was admitted with", r.RuntimeUs, s.LowUs, s.HighUs)
	case r.Core != nil && *r.Core != s.Core:
		return fmt.Errorf("core %d; want core %d, where the server was admitted", *r.Core, s.Core)
	}
	return nil
}

// Restore lets go of every server and sets back all that was changed. That this is wanted is on disk first: the
// process after one that dies midway finishes it.
func (e *Engine) Restore() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.store.save(kept{Restoring: true}); err != nil {
		return err
	}
	return e.restore()
}

func (e *Engine) restore() error {
	if err := e.adopt(table.Table{}); err != nil {
		return err
	}
	if err := e.Backend.Restore(); err != nil {
		return fmt.Errorf("restoring what was before: %w", err)
	}
	return e.store.clear()
}
