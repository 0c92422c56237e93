// Package node puts the fast path together on a machine: what it may do there, which backend works, which
// programs load, and then the engine.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/cores"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath"
	"github.com/mainspring-rt/mainspring/pkg/agent/sole"
	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Settings are the flags of the program, and its clocks.
type Settings struct {
	Socket, StateDir, Root, Backend, Cores, Reserved string
	Lead                                             time.Duration
	// Granularity, when not 0, is charged in place of what the self-test measures.
	Granularity       time.Duration
	Priority, Samples int
	// RunQueue measures run-queue latencies.
	RunQueue bool
	Version  string
	// Now and Wall are as in fastpath.Options; Sweep ticks every fastpath.SweepEvery. Clock is for waiting for a former process, and
	// for telling how long a start takes.
	Now   func() int64
	Wall  func() int64
	Sweep <-chan time.Time
	Clock clock.WithTicker
	// Abandon ends the process from within, whatever its other threads wait for. It is called where a step of the start hangs.
	Abandon func()
}

// Validate names the flag, its value and what would be right.
func (s Settings) Validate() error {
	var faults []error
	for _, path := range []struct{ flag, value string }{{"--socket", s.Socket}, {"--state-dir", s.StateDir}, {"--root", s.Root}} {
		if !filepath.IsAbs(path.value) {
			faults = append(faults, fmt.Errorf("%s %q: want an absolute path", path.flag, path.value))
		}
	}
	if s.Lead < 0 || s.Lead > time.Second {
		faults = append(faults, fmt.Errorf("--lead %s: want 0 to 1s", s.Lead))
	}
	if s.Granularity < 0 || s.Granularity > time.Second {
		faults = append(faults, fmt.Errorf("--charge-granularity %s: want 0 to 1s", s.Granularity))
	}
	if s.Priority < 1 || s.Priority > 99 {
		faults = append(faults, fmt.Errorf("--priority %d: want 1 to 99", s.Priority))
	}
	if s.Samples < 0 || s.Samples > 1<<20 {
		faults = append(faults, fmt.Errorf("--samples %d: want 0 to %d", s.Samples, 1<<20))
	}
	return errors.Join(faults...)
}

// Run is the life of the process. It returns when the context ends.
func Run(ctx context.Context, s Settings) (err error) {
	machine := host.New(s.Root)
	topology, err := machine.Topology()
	if err != nil {
		return fmt.Errorf("looking at the machine: %w", err)
	}
	choice, none := cores.Choose(topology, s.Cores, s.Reserved)
	if none == nil && len(choice.Cores) == 0 {
		none = fmt.Errorf("--cores %q and --reserved-cores %q leave no core to real-time work; want at least one", s.Cores, s.Reserved)
	}
	var missing lacks
	missing.note(actuator.LeaveGroup(machine), "the process may lack real-time budget")
	missing.note(fastpath.Become(s.Priority, others(topology.Online(), choice.Cores)), "the process is not real-time: reactions take milliseconds under load")
	missing.capabilities(machine)
	start := s.begin()
	defer start.done()
	start.next("waiting until no other fast path uses the state directory")
	lock, err := s.alone(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if none != nil {
		return errors.Join(none, s.leave(ctx, start, machine))
	}
	start.next("waiting until no other fast path governs these cores")
	governed, err := s.keep(ctx, machine, choice.Cores)
	defer func() { err = errors.Join(err, governed.Release()) }()
	var held *sole.HeldError
	if errors.As(err, &held) || ctx.Err() != nil {
		return err
	}
	missing.note(err, "another fast path could govern the same cores")
	return govern(ctx, s, start, machine, choice.Cores, missing)
}

// alone waits until no other fast path uses the state directory: two would write the same journal, and each set back
// what the other did.
func (s Settings) alone(ctx context.Context) (*sole.Lock, error) {
	lock, err := sole.Take(ctx, s.StateDir, "fastpath.lock", sole.Waiting{Clock: s.Clock, Begins: func(holder string) {
		slog.Warn("another fast path uses this state directory; waiting for it to end", "dir", s.StateDir, "holder", holder)
	}})
	var held *sole.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("another fast path uses --state-dir %s, and did not end within %s; end it, or use another directory: %w", s.StateDir, sole.Wait, err)
	}
	return lock, err
}

// leave has containers that were governed go on without the fast path. As long as there is no core to govern, this
// process ends, and no process ends their budgets.
func (s Settings) leave(ctx context.Context, start *steps, machine host.Host) error {
	if !fastpath.Governed(s.StateDir) {
		return nil
	}
	choice, err := choose(ctx, s, start, machine, nil)
	if err != nil {
		return err
	}
	start.next("putting back what nobody would end")
	return fastpath.Leave(s.StateDir, choice.Backend)
}

// govern runs the engine with what works on the machine.
func govern(ctx context.Context, s Settings, start *steps, machine host.Host, rtCores []int, missing lacks) error {
	choice, err := choose(ctx, s, start, machine, rtCores)
	if err != nil {
		return err
	}
	backend, granularity := choice.Backend, choice.GranularityUs
	missing.note(choice.Unmeasured, fmt.Sprintf("a tick is charged to every budget, %d us", granularity))
	start.next("loading programs")
	programs, err := ebpf.Open(ebpf.Options{Cores: rtCores, Identity: identityOf(backend), Jobs: true, RunQueue: s.RunQueue})
	if err != nil {
		return fmt.Errorf("loading programs: %w", err)
	}
	realtime, err := fastpath.Realtime()
	missing.note(err, "whether all threads are real-time is not known")
	engine, err := fastpath.New(fastpath.Options{
		Backend: backend, Programs: monitor{programs}, Cores: rtCores, GranularityUs: granularity,
		ChargeUs: cmp.Or(s.Granularity.Microseconds(), granularity), Lead: s.Lead, StateDir: s.StateDir,
		Now: s.Now, Wall: s.Wall, Instance: fmt.Sprintf("%d-%d", os.Getpid(), s.Wall()), Version: s.Version,
		Realtime: realtime, Missing: missing, RunQueue: s.RunQueue, Samples: s.Samples,
	})
	if err != nil {
		return errors.Join(err, programs.Close())
	}
	start.nextWithin("putting the table of the process before in force", longestResume)
	if err := engine.Resume(); err != nil {
		slog.Warn("beginning without a table", "reason", err)
	}
	start.next("collecting garbage and locking memory")
	engine.Settle()
	slog.Info("governing", "backend", backend.Name(), "granularityUs", granularity, "hook", programs.Hook(), "cores", rtCores,
		"lead", s.Lead, "realtime", realtime, "missing", strings.Join(engine.Missing, "; "))
	start.next("answering on the socket")
	return errors.Join(serve(ctx, engine, s, start), engine.Close())
}

// choose a backend, and say in the log why.
func choose(ctx context.Context, s Settings, start *steps, machine host.Host, rtCores []int) (actuator.Choice, error) {
	start.next("looking for what was chosen before")
	choice, err := actuator.Start(ctx, actuator.ProbeOptions{
		Host: machine, Want: s.Backend, StateDir: s.StateDir, Cores: rtCores, Now: s.Now, Governed: fastpath.Governed(s.StateDir),
		Step: start.next,
	})
	for _, note := range choice.Notes {
		slog.Warn("backend", "note", note)
	}
	for _, f := range choice.Findings {
		slog.Info("backend", "name", f.Backend, "taken", f.Taken, "reason", f.String())
	}
	if err != nil {
		return choice, fmt.Errorf("%w: %s", err, choice.Findings)
	}
	return choice, nil
}

// serve runs the engine and its socket until both have ended; the end of one is the end of the other.
func serve(ctx context.Context, engine *fastpath.Engine, s Settings, start *steps) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() {
		defer stop()
		served <- engine.Serve(ctx, s.Socket, start.done)
	}()
	err := engine.Run(ctx, s.Sweep)
	stop()
	return errors.Join(err, <-served)
}

// others are the cores that take no real-time work; none when all do.
func others(online, rt []int) []int {
	taken := make(map[int]bool, len(rt))
	for _, c := range rt {
		taken[c] = true
	}
	var rest []int
	for _, c := range online {
		if !taken[c] {
			rest = append(rest, c)
		}
	}
	return rest
}

func identityOf(backend actuator.Backend) ebpf.Identity {
	if backend.Identity() == actuator.IdentityCpuset {
		return ebpf.IdentityCpuset
	}
	return ebpf.IdentityCPU
}

// monitor fits the programs to the engine.
type monitor struct{ *ebpf.Monitor }

// Ring implements fastpath.Programs.
func (m monitor) Ring(core int) (fastpath.Ring, error) { return m.Monitor.Ring(core) }

// lacks says what the process does not have, and what that costs.
type lacks []string

func (l *lacks) note(err error, cost string) {
	if err != nil {
		*l = append(*l, fmt.Sprintf("%s: %s", err, cost))
	}
}

// needed are the capabilities that the process works with, and what is lost without them.
var needed = []struct {
	capability host.Capability
	cost       string
}{
	{host.CapBPF, "programs cannot be loaded"},
	{host.CapPerfmon, "programs cannot read the scheduler"},
	{host.CapSysNice, "policies of threads cannot be set"},
	{host.CapIPCLock, "memory cannot be locked"},
}

func (l *lacks) capabilities(machine host.Host) {
	has, err := machine.Capabilities()
	if err != nil {
		l.note(err, "capabilities are not known")
		return
	}
	for _, n := range needed {
		if !has.Has(n.capability) {
			*l = append(*l, fmt.Sprintf("%s is missing: %s", n.capability, n.cost))
		}
	}
}
