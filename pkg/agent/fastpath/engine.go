package fastpath

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/governor"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
)

// Programs are the programs in the kernel (ebpf.Monitor).
type Programs interface {
	Hook() string
	Notes() []string
	Config(slot int) *ebpf.Config
	State(slot int) *ebpf.State
	Track(cgroupID uint64, slot int) error
	Untrack(cgroupID uint64) error
	Ring(core int) (Ring, error)
	// RunQueue is how long threads of a slot waited for their core.
	RunQueue(slot int) ebpf.Histogram
	// ForgetRunQueue begins that anew, for a server that gets the slot.
	ForgetRunQueue(slot int)
	Lost() uint64
	Unseen() uint64
	// Close detaches them, and takes away the memory of Config and State.
	Close() error
}

// Options are what an Engine works with. All but Samples and Missing are required.
type Options struct {
	Backend  actuator.Backend
	Programs Programs
	// Cores that take real-time work.
	Cores []int
	// GranularityUs is what the self-test measured, ChargeUs what the account charges to every budget.
	GranularityUs int64
	ChargeUs      int64
	// Lead is how long before its end a budget is raised.
	Lead time.Duration
	// StateDir holds the last table, so that the fast path goes on alone after a restart.
	StateDir string
	// Now is CLOCK_MONOTONIC in nanoseconds, Wall the time since 1970.
	Now  func() int64
	Wall func() int64
	// Instance and Version of this process.
	Instance string
	Version  string
	// Realtime says whether the process is; Missing what it lacks, in words.
	Realtime bool
	Missing  []string
	// RunQueue has run-queue latencies reported.
	RunQueue bool
	// Samples is how many reactions are kept for each core; 0 keeps none.
	Samples int
}

// Engine governs the servers of one node. Apply, Set, Sweep, Report and Restore are its slow half and may
// be called from several goroutines; Run owns the threads of the fast half.
type Engine struct {
	Options
	// Locked says whether memory is, see Settle.
	Locked bool
	store  store
	cores  map[int]*core

	mu      sync.Mutex // one table at a time
	ending  atomic.Bool
	table   table.Table
	applied int64
	adopted bool // there was a table
	entries map[string]*entry
	slots   slots
	// sweeps are how many there were; swept is when the last one ended.
	sweeps uint64
	swept  atomic.Int64
	heap   heap
	limits limits
	stale  stale
	// sweepFault is why the backend could not put back what no server needs any more.
	sweepFault error
	// unenforced is why the kernel enforces no budget now.
	unenforced error
	// keptFault is why the table of the process before could not be used.
	keptFault error
}

// entry is a server of the table, and what was made of it.
type entry struct {
	spec       table.Server
	slot       int
	generation uint32
	group      actuator.Group // nil while the container is not there, or was refused
	core       *core          // where it is governed; nil while it is not
	last       *core          // where it was last, and its group still is
	sized      int64          // the largest budget that its group is sized for
	had        share          // of its core, when its group was let go of to be opened anew
	earlier    counts         // of its former generations
	drift      uint64
	checkFault error // of the last look at it
	threads    int
	realtime   int // of those; also by what we would give those that we have stopped
	below      int // threads in groups below its own
	undone     uint64
	retryAt    int64
	failures   int
	fault      error
	moveFault  error // why it is not on the core that the table sends it to, but governed where it was
}

// New returns an engine with the programs' rings open, and the table of the process before, if there was one, not
// yet applied.
func New(o Options) (*Engine, error) {
	if len(o.Cores) == 0 {
		return nil, errors.New("no core takes real-time work; want at least one")
	}
	e := &Engine{
		Options: o, store: storeIn(o.StateDir), cores: map[int]*core{},
		entries: map[string]*entry{}, limits: newLimits(),
	}
	for _, id := range o.Cores {
		ring, err := o.Programs.Ring(id)
		if err != nil {
			e.closeRings()
			return nil, fmt.Errorf("opening the ring of core %d: %w", id, err)
		}
		e.cores[id] = &core{
			id: id, lead: o.Lead.Nanoseconds(), now: o.Now, ring: ring, touched: make([]int, 0, maxTouched),
			samples: newSamples(o.Samples), gov: governor.New(governor.Options{
				GranularityUs: o.ChargeUs, EDF: o.Backend.Policy() == actuator.PolicyEDF, Seen: seen(o.Programs, o.Now), Started: o.Now(),
			}),
		}
		e.cores[id].turned.Store(o.Now())
	}
	e.swept.Store(o.Now())
	return e, nil
}

// SweepEvery is how often what is in force is compared with what should be.
const SweepEvery = time.Second

// Run runs a thread on each core, and the sweep, until the context ends or a thread fails.
func (e *Engine) Run(ctx context.Context, tick <-chan time.Time) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	e.ending.Store(ctx.Err() != nil)
	e.announce(0)
	var threads sync.WaitGroup
	for _, c := range e.cores {
		threads.Go(func() {
			if err := c.run(); err != nil {
				stop(err)
			}
		})
	}
	stopWatching := context.AfterFunc(ctx, func() { e.ending.Store(true) })
	defer stopWatching()
	for {
		select {
		case <-ctx.Done():
			e.closeRings()
			threads.Wait()
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		case <-tick:
			e.Sweep()
			e.collectGarbage()
		}
	}
}

// maxTouched is how many budgets one decision may set: that of every server, and of some twice.
const maxTouched = 2 * table.MaxServers

// Resume applies the table of the process before, or finishes its Restore. Call it before Run. The error says why there is a
// table that cannot be used: it is put aside, what is in force stays, and the report tells until the next table comes.
func (e *Engine) Resume() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept, ok, err := e.store.load()
	switch {
	case err != nil:
		e.keptFault = errors.Join(fmt.Errorf("%w: nobody is raised before the agent has sent another", err), e.store.putAside())
	case ok && kept.Restoring:
		e.sweepFault = e.restore()
	case ok:
		_ = e.adopt(kept.Table) // it fails only when Run has ended
	}
	return e.keptFault
}

// Close closes the programs. A request that is under way comes to its end first; one that comes later waits for ever, for the
// memory that it would look at is gone. Call it when Run has returned.
func (e *Engine) Close() error {
	e.mu.Lock()
	return e.Programs.Close()
}

func (e *Engine) closeRings() {
	for _, c := range e.cores {
		_ = c.ring.Close() // wakes its thread
	}
}
