package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// tracked is struct tracked of bpf/include/maps.h.
type tracked struct {
	Own  uint64
	Slot uint32
	_    uint32
}

// initArgs is struct init_args of bpf/budget.bpf.c.
type initArgs struct {
	Core  uint32
	Slot  uint32
	Which uint32
	Try   uint32
}

// timerPinned is BPF_F_TIMER_CPU_PIN, which kernels have since 6.7. Before, a timer may fire on another
// core when the one that started it is idle, which it is not while a server runs.
const timerPinned = uint64(2)

// loadBudget loads the program that watches budgets, and makes the maps that all share.
func (m *Monitor) loadBudget(o Options, kernel features) error {
	err := m.tryBudget(o, kernel, timerPinned)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	m.notes = append(m.notes, "timers cannot be pinned to a core (BPF_F_TIMER_CPU_PIN, Linux 6.7): an alarm may come through another core")
	return m.tryBudget(o, kernel, 0)
}

func (m *Monitor) tryBudget(o Options, kernel features, timerFlags uint64) error {
	spec, err := loadBudget()
	if err != nil {
		return fmt.Errorf("reading the budget programs: %w", err)
	}
	spec.Maps[budgetMapRings].InnerMap.MaxEntries = uint32(o.ringBytes())
	err = errors.Join(
		spec.Variables[budgetVarTimerFlags].Set(timerFlags),
		spec.Variables[budgetVarIdentity].Set(uint32(o.Identity)),
		spec.Variables[budgetVarDlTracepoint].Set(kernel.dlThrottle),
		spec.Variables[budgetVarWatchJobs].Set(o.Jobs),
		spec.Variables[budgetVarHide].Set(o.hide),
	)
	if err != nil {
		return fmt.Errorf("setting the budget programs' constants: %w", err)
	}
	if err := spec.LoadAndAssign(&m.budget, nil); err != nil {
		return fmt.Errorf("loading the budget programs: %w", err)
	}
	// The timer of the last core is tried: it fires, finds nobody there, and does nothing.
	if err := m.initTimer(initArgs{Core: MaxCores - 1, Try: 1}); err != nil {
		return errors.Join(err, m.budget.Close())
	}
	return nil
}

// initTimer initialises a timer, which only a program may do.
func (m *Monitor) initTimer(args initArgs) error {
	err := retryMemory(func() error {
		code, err := m.budget.BudgetInit.Run(&ebpf.RunOptions{Context: &args})
		if err == nil && code != 0 {
			err = unix.Errno(-int32(code))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("initialising a timer: %w", err)
	}
	return nil
}

// retryMemory tries what fails for want of memory a few times. The kernel takes that of a timer only from what a core has
// at hand, without waiting: there may be none though there is plenty.
func retryMemory(do func() error) error {
	const tries = 10
	pause := unix.Timespec{Nsec: 2_000_000}
	for range tries - 1 {
		if err := do(); !errors.Is(err, unix.ENOMEM) {
			return err
		}
		_ = unix.Nanosleep(&pause, nil) // a shorter one does no harm
	}
	return do()
}

// initCoreTimers initialises the timers of all cores that the machine may have.
func (m *Monitor) initCoreTimers() error {
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("counting the cores: %w", err)
	}
	for core := range min(possible, MaxCores) {
		if err := m.initTimer(initArgs{Core: uint32(core)}); err != nil {
			return err
		}
	}
	return nil
}

// addRing makes the ring of a core.
func (m *Monitor) addRing(core, size int) error {
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: "ring", Type: ebpf.RingBuf, MaxEntries: uint32(size)})
	if err != nil {
		return fmt.Errorf("making the ring of core %d: %w", core, err)
	}
	m.programs = append(m.programs, ring)
	if err := m.budget.Rings.Put(uint32(core), ring); err != nil {
		return fmt.Errorf("adding the ring of core %d: %w", core, err)
	}
	reader, err := newRing(ring.FD(), size, Monotonic)
	if err != nil {
		return fmt.Errorf("core %d: %w", core, err)
	}
	m.rings[core] = reader
	return nil
}

// shared are the maps that the programs of all objects use.
func (m *Monitor) shared() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		budgetMapGroups: m.budget.Groups, budgetMapConfigs: m.budget.Configs, budgetMapStates: m.budget.States,
		budgetMapTolds: m.budget.Tolds, budgetMapThreads: m.budget.Threads, budgetMapRings: m.budget.Rings, budgetMapLost: m.budget.Lost,
	}
}

// attach attaches the programs, those that only add to it first.
func (m *Monitor) attach(o Options, kernel features) error {
	if kernel.dlThrottle {
		if err := m.attachDeadline(o); err != nil {
			return err
		}
	}
	if o.Jobs {
		if err := m.attachJobs(o); err != nil {
			return err
		}
	}
	if o.RunQueue {
		if err := m.attachRunQueue(o); err != nil {
			return err
		}
	}
	return m.attachTracing(m.budget.BudgetSwitch)
}

func (m *Monitor) attachTracing(program *ebpf.Program) error {
	l, err := link.AttachTracing(link.TracingOptions{Program: program})
	if err != nil {
		return fmt.Errorf("attaching %v: %w", program, err)
	}
	m.links = append(m.links, l)
	return nil
}
