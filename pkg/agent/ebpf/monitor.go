package ebpf

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Identity is which cgroup of a thread names its server.
type Identity int

const (
	// IdentityCPU is the group of the cpu controller: v1, and v2 where containers have the controller.
	IdentityCPU Identity = iota
	// IdentityCpuset is the group of the cpuset controller, for machines where real-time threads have to
	// stay in the root group of the cpu controller.
	IdentityCpuset
)

// MaxCores is the highest number of cores, possible ones included.
const MaxCores = 1024

const defaultRingBytes = 64 << 10

// Options of a Monitor.
type Options struct {
	// Cores that get a ring. Events of slots whose Config.Core has none are lost, and counted so.
	Cores []int
	// Identity of servers.
	Identity Identity
	// Jobs watches job boundaries of slots with FlagJobs.
	Jobs bool
	// RunQueue measures how long threads of servers wait for their core.
	RunQueue bool
	// RingBytes is the size of each ring: a power of two and a multiple of the page. 0 is 64 KiB, which
	// holds 1,170 events.
	RingBytes int

	// hide is a process that the programs behave as if the kernel did not call them for; in tests.
	hide uint32
}

func (o Options) ringBytes() int { return cmp.Or(o.RingBytes, defaultRingBytes) }

// validate says what is wrong with the options.
func (o Options) validate() error {
	page := os.Getpagesize()
	if size := o.RingBytes; size&(size-1) != 0 || size%page != 0 {
		return fmt.Errorf("ring bytes are %d; want a power of two and a multiple of %d", size, page)
	}
	if o.Identity != IdentityCPU && o.Identity != IdentityCpuset {
		return fmt.Errorf("identity is %d; want IdentityCPU or IdentityCpuset", o.Identity)
	}
	for i, core := range o.Cores {
		if core < 0 || core >= MaxCores {
			return fmt.Errorf("cores[%d] is %d; want 0 to %d", i, core, MaxCores-1)
		}
		if slices.Contains(o.Cores[:i], core) {
			return fmt.Errorf("cores[%d] is %d, which is there twice", i, core)
		}
	}
	return nil
}

// Monitor is the programs at work. Its methods may be called from several goroutines; Config, State and
// Ring give memory and streams that each have one user.
type Monitor struct {
	hook  string
	notes []string

	budget   budgetObjects
	programs []io.Closer // of the other objects
	links    []link.Link
	rings    map[int]*Ring
	configs  mapped[Config]
	states   mapped[State]
	lost     mapped[uint64]
	unseen   mapped[uint64]
	runqueue *ebpf.Map

	mu      sync.Mutex
	groups  map[int][]uint64 // by slot; the first is the server's own
	changes uint64           // of the map of groups
}

// Open loads the programs, probes what the kernel has, and attaches them. errors.Is says why it could not:
// ErrPermission or ErrUnsupported.
func Open(o Options) (*Monitor, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("opening the monitor: %w", err)
	}
	m := &Monitor{rings: map[int]*Ring{}, groups: map[int][]uint64{}}
	if err := m.open(o); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the monitor: %w", explain(err)), m.Close())
	}
	return m, nil
}

// open is Open without undoing what an error leaves behind.
func (m *Monitor) open(o Options) error {
	kernel, err := probe()
	if err != nil {
		return err
	}
	m.hook, m.notes = kernel.hook(), kernel.notes(o)
	if err := m.loadBudget(o, kernel); err != nil {
		return err
	}
	if err := m.mapMemory(); err != nil {
		return err
	}
	for _, core := range o.Cores {
		if err := m.addRing(core, o.ringBytes()); err != nil {
			return err
		}
	}
	if err := m.initCoreTimers(); err != nil {
		return err
	}
	return m.attach(o, kernel)
}

// Hook is what sees overruns, for example tp_btf/sched_switch.
func (m *Monitor) Hook() string { return m.hook }

// Notes says what the kernel has not, and what that costs; one sentence each.
func (m *Monitor) Notes() []string { return slices.Clone(m.notes) }

// Config of a slot, shared with the programs. It panics beyond MaxSlots.
func (m *Monitor) Config(slot int) *Config { return &m.configs.of[slot] }

// State of a slot, shared with the programs. It panics beyond MaxSlots. Read it with Load.
func (m *Monitor) State(slot int) *State { return &m.states.of[slot] }

// Lost is how many events did not fit into their ring.
func (m *Monitor) Lost() uint64 { return sum(m.lost.of) }

// Unseen is how often a thread of a server came to its core without the programs being called, because the kernel hides
// who left. Such a thread is taken up a little later.
func (m *Monitor) Unseen() uint64 { return sum(m.unseen.of) }

// Ring is the stream of events of a core, for one reader.
func (m *Monitor) Ring(core int) (*Ring, error) {
	ring, found := m.rings[core]
	if !found {
		return nil, fmt.Errorf("core %d has no ring; want one of Options.Cores", core)
	}
	return ring, nil
}

// Wake has the reader of a core run once, so that a thread that ran there since before its server was
// tracked is seen. Cores without a ring are passed over.
func (m *Monitor) Wake(core int) {
	if ring, found := m.rings[core]; found {
		ring.Wake()
	}
}

// Track has the threads of a cgroup belong to a slot. The first cgroup of a slot is the server's own, others
// are groups nested in it. A thread that runs at that time is seen when it is next switched in, see Wake.
func (m *Monitor) Track(cgroupID uint64, slot int) error {
	if slot < 0 || slot >= MaxSlots {
		return fmt.Errorf("tracking cgroup %d: slot %d; want 0 to %d", cgroupID, slot, MaxSlots-1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.initTimer(initArgs{Slot: uint32(slot), Which: 1}); err != nil {
		return fmt.Errorf("tracking cgroup %d: %w", cgroupID, err)
	}
	ids := m.groups[slot]
	own := cgroupID
	if len(ids) > 0 {
		own = ids[0]
	}
	if err := errors.Join(m.budget.Groups.Put(cgroupID, tracked{Own: own, Slot: uint32(slot)}), m.changed()); err != nil {
		return fmt.Errorf("tracking cgroup %d: %w", cgroupID, err)
	}
	m.forget(cgroupID)
	m.groups[slot] = append(m.groups[slot], cgroupID)
	return nil
}

// Untrack lets a cgroup's threads go. One that is not tracked is no error.
func (m *Monitor) Untrack(cgroupID uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(cgroupID)
	err := m.budget.Groups.Delete(cgroupID)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	if err := errors.Join(err, m.changed()); err != nil {
		return fmt.Errorf("untracking cgroup %d: %w", cgroupID, err)
	}
	return nil
}

// changed has the programs forget what they have found of groups. The caller holds the lock.
func (m *Monitor) changed() error {
	m.changes++
	return m.budget.Changes.Put(uint32(0), m.changes)
}

// forget takes a cgroup from the slot that has it. The caller holds the lock.
func (m *Monitor) forget(cgroupID uint64) {
	for slot, ids := range m.groups {
		left := slices.DeleteFunc(ids, func(id uint64) bool { return id == cgroupID })
		if len(left) == 0 {
			delete(m.groups, slot)
			continue
		}
		m.groups[slot] = left
	}
}

// Close detaches the programs and ends the readers. Config and State must not be used after it.
func (m *Monitor) Close() error {
	var errs []error
	for _, l := range m.links {
		errs = append(errs, l.Close())
	}
	for _, ring := range m.rings {
		errs = append(errs, ring.Close())
	}
	for _, p := range m.programs {
		errs = append(errs, p.Close())
	}
	errs = append(errs, m.configs.close(), m.states.close(), m.lost.close(), m.unseen.close(), m.budget.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing the monitor: %w", err)
	}
	return nil
}
