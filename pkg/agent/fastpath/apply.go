package fastpath

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// errNotRunning is the fault of a server whose container is not there.
var errNotRunning = errors.New("the container does not run on this node")

// errEnding: the process ends before a table is in force as a whole. The next one begins with it.
var errEnding = errors.New("the fast path is ending; the next one puts the table in force")

// InvalidError means: a request makes no sense. It names every fault.
type InvalidError struct{ Faults error }

func (e *InvalidError) Error() string { return e.Faults.Error() }

// Unwrap returns the faults.
func (e *InvalidError) Unwrap() error { return e.Faults }

// Apply puts a table in force. An invalid one changes nothing. What cannot be done for one server is told in
// its report, and tried again by the sweep. It goes on when the client that asked has gone: a table is put in
// force as a whole.
func (e *Engine) Apply(t table.Table) error {
	if err := t.Validate(); err != nil {
		return &InvalidError{Faults: err}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.store.save(kept{Table: t}); err != nil {
		return err
	}
	return e.adopt(t)
}

// adopt makes the servers of a table those of the node.
func (e *Engine) adopt(t table.Table) error {
	e.table = t.Sorted()
	e.stale.take(e.table.Stale(), e.Now())
	wanted := make(map[string]bool, len(t.Servers))
	for _, s := range t.Servers {
		wanted[s.ID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(e.entries)) {
		if !wanted[id] {
			e.drop(e.entries[id])
		}
	}
	for _, s := range e.table.Servers {
		e.specify(s)
	}
	e.resize()
	if !e.settle() {
		return errEnding
	}
	e.applied, e.adopted, e.keptFault = t.Generation, true, nil
	e.putBack()
	return nil
}

// unopened are the groups that the table names and that are not open: their core takes no real-time work any more, or opening them failed.
func (e *Engine) unopened() []string {
	var out []string
	for _, en := range e.entries {
		if en.group == nil && en.spec.Cgroup != "" {
			out = append(out, en.spec.Cgroup)
		}
	}
	slices.Sort(out)
	return out
}

// drop ends the governing of a server. A container that lives on gets back what it had.
func (e *Engine) drop(en *entry) {
	e.detach(en)
	e.close(en, true)
	*e.Programs.Config(en.slot) = ebpf.Config{}
	*e.Programs.State(en.slot) = ebpf.State{}
	e.Programs.ForgetRunQueue(en.slot)
	e.slots.free(en.slot)
	delete(e.entries, en.spec.ID)
}

// specify gives a server its new spec. What it has open and the spec contradicts is let go.
func (e *Engine) specify(s table.Server) {
	en := e.entries[s.ID]
	if en == nil {
		slot, generation, err := e.slots.take()
		if err != nil {
			return // the table's bound is that of the slots
		}
		en = &entry{slot: slot, generation: generation}
		e.entries[s.ID] = en
	}
	before := en.spec
	en.spec = s
	if en.group == nil || !en.home() {
		en.retryAt, en.failures = 0, 0 // the sender of a table knows more than when it was last tried
	}
	if before.Cgroup != s.Cgroup {
		en.had = share{}
	}
	if en.home() || before.Core != s.Core {
		en.moveFault = nil
	}
	switch {
	case en.group == nil:
	case before.Cgroup != s.Cgroup:
		e.detach(en)
		e.close(en, false)
	case before.PeriodUs != s.PeriodUs, before.DeadlineUs != s.DeadlineUs:
		e.reopen(en, before)
	}
}

// most is the largest budget that a server can get: one of criticality Low what the plan raises it to, if it does.
func (e *Engine) most(s table.Server) int64 {
	if known, err := s.RT(); err == nil && known.MayEscalate() {
		return s.HighUs
	}
	return max(s.LeastUs, min(e.specOf(s, e.table.Plan(s.Core)).RaiseToUs, s.HighUs))
}

// detach takes a server from its core. Events of it that are under way are void. The next load of the core lets go of its room, unless it is back by then.
func (e *Engine) detach(en *entry) {
	if en.core == nil {
		return
	}
	en.core.take(en.slot)
	atomic.StoreUint32(&e.Programs.Config(en.slot).Flags, 0)
	// The programs and the governor begin to count anew with the next generation.
	en.earlier = e.countsOf(en)
	*e.Programs.State(en.slot) = ebpf.State{}
	en.generation = e.slots.renew(en.slot)
	en.core = nil
}

// close lets go of a server's group.
func (e *Engine) close(en *entry, restore bool) {
	if en.group == nil {
		return
	}
	// Both fail when the container has ended, and then there is nothing to let go of.
	_ = e.Programs.Untrack(en.group.ID())
	_ = en.group.Close(restore)
	en.group = nil
}

// settle brings every server to its core: first what leaves and shrinks, then what comes. It says whether it
// came to the end, which it does unless the process ends.
func (e *Engine) settle() bool {
	for _, c := range e.cores {
		e.load(c)
	}
	arrived := map[*core]bool{}
	for _, id := range slices.Sorted(maps.Keys(e.entries)) {
		en := e.entries[id]
		if en.home() || en.retryAt > e.Now() {
			continue
		}
		if e.ending.Load() {
			return false
		}
		left := en.core
		if en.fault, en.moveFault = e.arrive(en), nil; en.fault != nil {
			en.failures++
			en.retryAt = e.Now() + backoff(en.failures)
			e.stay(en)
		} else {
			en.failures = 0
		}
		arrived[left], arrived[en.core] = true, true
	}
	delete(arrived, nil)
	for c := range arrived {
		e.load(c)
		c.ring.Wake() // the kernel switches the thread that runs on the core out and in, and so the program sees it
	}
	e.prioritise()
	return true
}

// backoff grows from a tenth of a second to half a minute.
func backoff(failures int) int64 {
	return min(int64(100*time.Millisecond)<<min(failures-1, 16), int64(30*time.Second))
}

func (e *Engine) actuatorServer(s table.Server) actuator.Server {
	return actuator.Server{
		ID: s.ID, Cgroup: s.Cgroup, Core: s.Core, PeriodUs: s.PeriodUs, DeadlineUs: s.DeadlineUs, HighUs: e.most(s), Priority: lowestPriority,
	}
}

// attach gives a server its place on a core. The next load of the core grants it a budget.
func (e *Engine) attach(en *entry, c *core) error {
	budget, _, err := en.group.Read()
	if err != nil {
		return fmt.Errorf("reading what is in force: %w", err)
	}
	s := en.spec
	config := e.Programs.Config(en.slot)
	*config = ebpf.Config{
		BudgetNs: uint64(budget.RuntimeUs) * 1000, AlarmNs: uint64(budget.RuntimeUs) * 1000,
		CleanNs: cleanNs(s), WholeNs: uint64(e.most(s)) * 1000,
		PeriodNs: uint64(s.PeriodUs) * 1000, DeadlineNs: uint64(s.DeadlineUs) * 1000,
		CleanWindows: cleanWindows(s.PeriodUs), Source: e.Backend.Source(), Generation: en.generation, Core: uint32(c.id),
	}
	enforcer, _ := en.group.(actuator.Enforcer)
	c.put(en.slot, &place{
		group: en.group, enforcer: enforcer, config: config, carries: e.Backend.Source() != ebpf.SourceOwn,
	}, budget.RuntimeUs)
	en.core, en.last, en.realtime, en.below, en.undone = c, c, 0, 0, 0
	return nil
}

// A window is clean when at most this share of the low budget was used, and a server recovers after windows
// of at least this time.
const (
	cleanPercent   = 95
	cleanLeast     = 20
	cleanLeastTime = int64(1_000_000) // us
)

// cleanNs is the use up to which a window is clean.
func cleanNs(s table.Server) uint64 { return uint64(s.LowUs) * 1000 * cleanPercent / 100 }

func cleanWindows(periodUs int64) uint32 {
	return uint32(max(cleanLeast, (cleanLeastTime+periodUs-1)/periodUs))
}

// load tells a core's governor which servers it has now.
func (e *Engine) load(c *core) {
	plan := e.table.Plan(c.id)
	var servers []governor.Server
	bySlot := map[int]*entry{}
	for _, id := range slices.Sorted(maps.Keys(e.entries)) {
		en := e.entries[id]
		if en.core != c {
			continue
		}
		spec := e.specOf(en.spec, plan)
		spec.Slot, spec.Core, spec.Leaving = en.slot, c.id, en.leaves()
		servers = append(servers, spec)
		bySlot[en.slot] = en
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	faults := c.gov.Load(servers, plan, c.now(), c)
	for _, en := range bySlot {
		en.fault = nil
	}
	for _, f := range faults {
		bySlot[f.Slot].fault = f.Err
	}
	c.followAll()
	c.next = c.now() // the governor may have things to do
}

// Priorities that servers get where we choose them: deadline-monotonic (Leung and Whitehead 1982), below the
// kernel's and our own threads.
const (
	lowestPriority  = 10
	highestPriority = 85
)

// prioritise orders the servers of each core by deadline where the backend lets us.
func (e *Engine) prioritise() {
	byCore := map[*core][]*entry{}
	for _, en := range e.entries {
		if en.core != nil {
			byCore[en.core] = append(byCore[en.core], en)
		}
	}
	for _, servers := range byCore {
		slices.SortFunc(servers, func(a, b *entry) int {
			return cmp.Or(cmp.Compare(b.spec.DeadlineUs, a.spec.DeadlineUs), cmp.Compare(a.spec.ID, b.spec.ID))
		})
		priority := lowestPriority
		for i, en := range servers {
			if i > 0 && en.spec.DeadlineUs < servers[i-1].spec.DeadlineUs {
				priority = min(priority+1, highestPriority)
			}
			prioritised, ok := en.group.(actuator.Prioritized)
			if !ok {
				continue
			}
			if err := prioritised.SetPriority(priority); err != nil && !errors.Is(err, actuator.ErrGone) {
				en.fault = fmt.Errorf("setting priority %d: %w", priority, err)
			}
		}
	}
}
