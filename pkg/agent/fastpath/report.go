package fastpath

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Report is the state now.
func (e *Engine) Report() table.Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := table.Report{
		Instance: e.Instance, Version: e.Version, Generation: e.applied, Origin: e.table.Origin, Backend: e.Backend.Name(), Guarantee: e.Backend.Guarantee(),
		GranularityUs: e.GranularityUs, LeadUs: e.Lead.Microseconds(), Hook: e.Programs.Hook(), Realtime: e.Realtime, Locked: e.Locked,
		Unenforced: textOf(e.unenforced), Missing: slices.Concat(e.Missing, e.Programs.Notes()), Lost: e.Programs.Lost(), Unseen: e.Programs.Unseen(), Stale: len(e.stale.now),
	}
	for _, fault := range []error{e.keptFault, e.sweepFault} {
		if fault != nil {
			out.Missing = append(out.Missing, fault.Error())
		}
	}
	capacity := e.Backend.Capacity(e.Cores)
	for _, id := range slices.Sorted(maps.Keys(e.cores)) {
		c := e.cores[id]
		c.mu.Lock()
		out.Cores = append(out.Cores, table.CoreReport{
			ID: id, CapacityPpm: capacity[id], PromisedPpm: int64(c.gov.Promised()), Broken: c.gov.Broken(),
		})
		out.Events += c.events
		out.Detect.Merge(c.detect)
		out.React.Merge(c.react)
		c.mu.Unlock()
	}
	for _, id := range slices.Sorted(maps.Keys(e.entries)) {
		s := e.server(e.entries[id])
		out.Servers = append(out.Servers, s)
		if s.LevelUs > e.entries[id].spec.LowUs {
			out.Cores[slices.Index(e.sortedCores(), e.entries[id].core.id)].Raised++
		}
	}
	return out
}

func (e *Engine) sortedCores() []int { return slices.Sorted(maps.Keys(e.cores)) }

// server is one server as applied, read back from the kernel.
func (e *Engine) server(en *entry) table.ServerReport {
	n := e.countsOf(en)
	out := table.ServerReport{
		ID: en.spec.ID, Drift: en.drift, Threads: en.threads, RealtimeThreads: en.realtime, Overruns: n.overruns, Throttles: n.throttles, Misses: n.misses, Jobs: n.jobs,
		UsedUs: int64(n.usedNs / 1000), LastOverrun: e.wallOf(n.lastOverrun),
	}
	if e.RunQueue && en.core != nil {
		out.RunQueue = waits(e.Programs.RunQueue(en.slot))
	}
	if en.core == nil {
		out.HeldUs, out.Error = e.held(en), textOf(en.fault, en.checkFault)
		return out
	}
	state := en.core.state(en.slot)
	count(&out, state)
	fault := en.lasting(state)
	if out.Waiting = fault == nil && state.Waiting && state.BudgetUs < en.spec.LowUs; out.Waiting {
		fault = fmt.Errorf("its budget is %d us, less than low, %d us: the room was promised before, and it waits until that is over",
			state.BudgetUs, en.spec.LowUs)
	}
	out.Error, out.Escapes = textOf(en.moveFault, fault, en.checkFault), textOf(e.unenforced, evasion(en.undone), e.nested(en.below))
	budget, cores, err := en.group.Read()
	if err != nil {
		out.Error = cmp.Or(out.Error, err.Error())
		return out
	}
	out.BudgetUs, out.PeriodUs, out.Cores = budget.RuntimeUs, budget.PeriodUs, cores
	return out
}

// held is what the kernel goes on to enforce for a server that the fast path does not govern.
func (e *Engine) held(en *entry) int64 {
	if en.group != nil || en.spec.Cgroup == "" {
		return 0
	}
	budget, _, err := e.Backend.InForce(en.spec.Cgroup)
	if err != nil {
		return 0 // it has gone
	}
	return max(0, budget.RuntimeUs)
}

// manyUndone is how often a server may have been found real-time though it was stopped: the count loses one a second, and a
// scheduler that has just moved a thread may have it so, too.
const manyUndone = 100

// evasion is told of a server that undoes what is done to it.
func evasion(undone uint64) error {
	if undone < manyUndone {
		return nil
	}
	return errors.New("it makes itself real-time again and again while it is stopped, so its budget does not hold it: take " +
		"CAP_SYS_NICE and RLIMIT_RTPRIO from it, or use a node with backend rtgroup")
}

// nested is told of a server that has threads in groups that it has made below its own. Budgets of groups that the kernel keeps
// bind those below, too.
func (e *Engine) nested(threads int) error {
	if threads == 0 {
		return nil
	}
	what := "its budget binds them, but their overruns are not seen, and so not answered"
	if name := e.Backend.Name(); name == actuator.FIFO || name == actuator.Deadline {
		what = "neither budget nor watch reaches them"
	}
	return fmt.Errorf("%d threads are in control groups below the container's own, where %s: have the container run them in its own group, "+
		"without an init system that makes others", threads, what)
}

// textOf is what several faults say, empty when there is none.
func textOf(faults ...error) string {
	if err := errors.Join(faults...); err != nil {
		return err.Error()
	}
	return ""
}

// lasting is the fault of a governed server, but for a refused write that has been made up for.
func (en *entry) lasting(state governor.State) error {
	var unset *governor.UnsetError
	if errors.As(en.fault, &unset) && !state.Waiting {
		return nil
	}
	return en.fault
}

func waits(h ebpf.Histogram) *table.Waits {
	return &table.Waits{
		P50Us: h.Quantile(0.5).Microseconds(), P99Us: h.Quantile(0.99).Microseconds(), MaxUs: int64(h.MaxNs / 1000),
	}
}

func count(out *table.ServerReport, s governor.State) {
	out.LevelUs, out.Fault = s.LevelUs, s.Fault
	out.Raises, out.Partial, out.Denied, out.Refused = s.Raises, s.Partial, s.Denied, s.Refused
	out.Squeezes, out.Recoveries = s.Squeezes, s.Recoveries
}

// counts are what the programs count of a server.
type counts struct{ overruns, throttles, misses, jobs, usedNs, lastOverrun uint64 }

func counted(state *ebpf.State) counts {
	s := state.Load()
	return counts{
		overruns: s.Overruns, throttles: s.Throttles + s.LevelThrottles, misses: s.Misses, jobs: s.Jobs, usedNs: s.TotalNs,
		lastOverrun: s.LastOverrun,
	}
}

// countsOf are a server's, of all its generations.
func (e *Engine) countsOf(en *entry) counts {
	if en.core == nil {
		return en.earlier
	}
	now := counted(e.Programs.State(en.slot))
	// A period whose alarm was answered in time is an overrun of the level, although the budget in force was not
	// used up: the programs count only that.
	granted := en.core.state(en.slot)
	now.overruns = max(now.overruns, granted.Overruns)
	now.lastOverrun = max(now.lastOverrun, uint64(granted.LastOverrun))
	return en.earlier.plus(now)
}

func (c counts) plus(o counts) counts {
	return counts{
		overruns: c.overruns + o.overruns, throttles: c.throttles + o.throttles, misses: c.misses + o.misses, jobs: c.jobs + o.jobs,
		usedNs: c.usedNs + o.usedNs, lastOverrun: max(c.lastOverrun, o.lastOverrun),
	}
}

// wallOf is a time of the programs in nanoseconds since 1970; 0 stays 0.
func (e *Engine) wallOf(at uint64) int64 {
	if at == 0 {
		return 0
	}
	return e.Wall() - (e.Now() - int64(at))
}

// Samples are the last reactions of all cores, in the order of their instants.
func (e *Engine) Samples() []client.Sample {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := map[[2]uint32]string{}
	for id, en := range e.entries {
		names[[2]uint32{uint32(en.slot), en.generation}] = id
	}
	var out []client.Sample
	for _, c := range e.cores {
		c.mu.Lock()
		kept := c.samples.all()
		c.mu.Unlock()
		for _, s := range kept {
			out = append(out, client.Sample{
				Server: names[[2]uint32{s.slot, s.generation}], Instant: s.instant, Detected: s.detected, Woken: s.woken,
				Written: s.written, LeadNs: s.lead,
			})
		}
	}
	slices.SortFunc(out, func(a, b client.Sample) int { return cmp.Compare(a.Instant, b.Instant) })
	return out
}
