package ebpf

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// attachDeadline attaches to the kernel's own tracepoint of throttled SCHED_DEADLINE threads.
func (m *Monitor) attachDeadline(o Options) error {
	program, err := m.loadDeadline(o)
	if err != nil {
		return err
	}
	m.programs = append(m.programs, program)
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_dl_throttle_tp", Program: program})
	if err != nil {
		return fmt.Errorf("attaching to sched_dl_throttle_tp: %w", err)
	}
	m.links = append(m.links, l)
	return nil
}

func (m *Monitor) loadDeadline(o Options) (*ebpf.Program, error) {
	spec, err := loadDlThrottle()
	if err != nil {
		return nil, fmt.Errorf("reading the deadline program: %w", err)
	}
	var programs dlThrottlePrograms
	if err := m.loadShared(spec, &programs, o); err != nil {
		return nil, fmt.Errorf("loading the deadline program: %w", err)
	}
	return programs.DlThrottle, nil
}

// loadShared loads an object that works on the maps of the budget programs.
func (m *Monitor) loadShared(spec *ebpf.CollectionSpec, objects any, o Options) error {
	if identity, found := spec.Variables[budgetVarIdentity]; found {
		if err := identity.Set(uint32(o.Identity)); err != nil {
			return fmt.Errorf("setting the identity: %w", err)
		}
	}
	if rings, found := spec.Maps[budgetMapRings]; found {
		rings.InnerMap.MaxEntries = uint32(o.ringBytes())
	}
	replaced := map[string]*ebpf.Map{}
	for name, shared := range m.shared() {
		if _, found := spec.Maps[name]; found {
			replaced[name] = shared
		}
	}
	return spec.LoadAndAssign(objects, &ebpf.CollectionOptions{MapReplacements: replaced})
}

// attachJobs watches job boundaries. Where the tracepoint of clock_nanosleep cannot be had, all jobs are
// taken from wake-up to block.
func (m *Monitor) attachJobs(o Options) error {
	spec, err := loadJobs()
	if err != nil {
		return fmt.Errorf("reading the job programs: %w", err)
	}
	var objects jobsObjects
	if err := m.loadShared(spec, &objects, o); err != nil {
		return fmt.Errorf("loading the job programs: %w", err)
	}
	m.programs = append(m.programs, &objects)
	sleep, err := attachSleep(objects.JobsSleep)
	if err != nil {
		m.notes = append(m.notes, fmt.Sprintf("jobs are taken from wake-up to block, also of threads that sleep until absolute times: %v", err))
		return nil
	}
	m.programs = append(m.programs, sleep)
	return nil
}

// attachRunQueue measures run-queue latency.
func (m *Monitor) attachRunQueue(o Options) error {
	spec, err := loadRunqueue()
	if err != nil {
		return fmt.Errorf("reading the run-queue program: %w", err)
	}
	var objects runqueueObjects
	if err := m.loadShared(spec, &objects, o); err != nil {
		return fmt.Errorf("loading the run-queue program: %w", err)
	}
	m.programs = append(m.programs, &objects)
	m.runqueue = objects.Runqueues
	return m.attachTracing(objects.RunqueueSwitch)
}

// Histogram of how long threads of a server waited on the run queue. Count[i] are those of less than
// 2^i us, the last all others.
type Histogram struct {
	Count [24]uint64
	SumNs uint64
	MaxNs uint64
}

// RunQueue is the histogram of a slot since it was forgotten; empty without Options.RunQueue.
func (m *Monitor) RunQueue(slot int) Histogram {
	var h Histogram
	if m.runqueue != nil {
		_ = m.runqueue.Lookup(uint32(slot), &h) // the slots are fixed: only one beyond them is not there
	}
	return h
}

// ForgetRunQueue begins the histogram of a slot anew, which another server gets.
func (m *Monitor) ForgetRunQueue(slot int) {
	if m.runqueue != nil {
		_ = m.runqueue.Put(uint32(slot), Histogram{}) // the slots are fixed: only one beyond them is not there
	}
}

// Quantile is the upper bound of the bucket that holds the q-th part of the waits.
func (h Histogram) Quantile(q float64) time.Duration {
	var total, sum uint64
	for _, n := range h.Count {
		total += n
	}
	for i, n := range h.Count {
		sum += n
		if n > 0 && float64(sum) >= q*float64(total) {
			return min(time.Duration(1<<i)*time.Microsecond, time.Duration(h.MaxNs))
		}
	}
	return 0
}
