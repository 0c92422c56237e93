package ebpf

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mapped is an array map's memory, as values of T.
type mapped[T any] struct {
	memory []byte
	of     []T
}

// mapArray maps the memory of an array map whose values are laid out as T.
func mapArray[T any](array *ebpf.Map) (mapped[T], error) {
	var m mapped[T]
	size := int(unsafe.Sizeof(*new(T)))
	if got := int(array.ValueSize()); got != size {
		return m, fmt.Errorf("values of map %v have %d bytes; want %d", array, got, size)
	}
	count := int(array.MaxEntries())
	memory, err := unix.Mmap(array.FD(), 0, pages(size*count), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return m, fmt.Errorf("mapping the memory of %v: %w", array, err)
	}
	m.memory = memory
	m.of = unsafe.Slice((*T)(unsafe.Pointer(&memory[0])), count)
	return m, nil
}

func pages(size int) int {
	page := unix.Getpagesize()
	return (size + page - 1) / page * page
}

func (m *mapped[T]) close() error {
	if m.memory == nil {
		return nil
	}
	memory := m.memory
	m.memory, m.of = nil, nil
	return unix.Munmap(memory)
}

// sum adds up the counters of all cores.
func sum(counters []uint64) uint64 {
	var all uint64
	for core := range counters {
		all += load(&counters[core])
	}
	return all
}

func load(p *uint64) uint64 { return atomic.LoadUint64(p) }

// mapMemory maps what user space and the programs share.
func (m *Monitor) mapMemory() (err error) {
	if m.configs, err = mapArray[Config](m.budget.Configs); err != nil {
		return err
	}
	if m.states, err = mapArray[State](m.budget.States); err != nil {
		return err
	}
	if m.lost, err = mapArray[uint64](m.budget.Lost); err != nil {
		return err
	}
	m.unseen, err = mapArray[uint64](m.budget.Unseen)
	return err
}
