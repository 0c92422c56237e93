package ebpf

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// Tracked is the value of the map of cgroups.
type Tracked = tracked

// Takes and HasMember read the kernel's types.
var (
	Takes     = takes
	HasMember = hasMember
	// RetryMemory tries again what failed for want of memory.
	RetryMemory = retryMemory
)

// OpenWithDeadline opens a monitor and loads, but does not attach, the program of the tracepoint for throttled
// deadline threads, which few kernels have.
func OpenWithDeadline(o Options) (*Monitor, *ebpf.Program, error) {
	m, err := Open(o)
	if err != nil {
		return nil, nil, err
	}
	program, err := m.loadDeadline(o)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("loading the deadline program: %w", err), m.Close())
	}
	return m, program, nil
}

// Cost is the time that the program of context switches took, and how often it ran, while the kernel counts.
func (m *Monitor) Cost() (time.Duration, uint64, error) {
	stats, err := m.budget.BudgetSwitch.Stats()
	if err != nil {
		return 0, 0, err
	}
	return stats.Runtime, stats.RunCount, nil
}

// Hiding has the programs behave as if the kernel hid a process from them.
func Hiding(o Options, process int) Options {
	o.hide = uint32(process)
	return o
}

// SetNow gives a ring another clock.
func SetNow(r *Ring, now func() int64) { r.now = now }
