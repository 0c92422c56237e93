package ebpf

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrDeadline says that no event came before the deadline, or that the reader was woken for another reason.
var ErrDeadline = os.ErrDeadlineExceeded

// Bits of a record's header, and its size (include/uapi/linux/bpf.h).
const (
	recordBusy   = 1 << 31
	recordLost   = 1 << 30
	recordHeader = 8
)

// Ring is the stream of events of one core. Next and SetDeadline belong to one thread; Wake and Close may be
// called by others.
//
// The library's reader waits in whole milliseconds and takes two locks for an event. This one does neither.
type Ring struct {
	epoll    int
	wake     int
	consumer []byte
	producer []byte
	mask     uint64
	now      func() int64
	closed   atomic.Bool

	mu    sync.Mutex // held by Next: the memory goes after it
	until int64      // CLOCK_MONOTONIC ns; 0: for ever
	rest  unix.Timespec
	ready [2]unix.EpollEvent
	count [8]byte
}

// newRing maps the memory of a BPF ring buffer of size bytes.
func newRing(fd, size int, now func() int64) (*Ring, error) {
	r := &Ring{epoll: -1, wake: -1, mask: uint64(size - 1), now: now}
	if err := r.open(fd, size); err != nil {
		return nil, fmt.Errorf("opening a ring: %w", r.abandon(err))
	}
	return r, nil
}

func (r *Ring) open(fd, size int) (err error) {
	page := os.Getpagesize()
	if r.consumer, err = unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mapping the consumer's page: %w", err)
	}
	if r.producer, err = unix.Mmap(fd, int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mapping the records: %w", err)
	}
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("creating an epoll descriptor: %w", err)
	}
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("creating an eventfd: %w", err)
	}
	for _, watched := range []int{fd, r.wake} {
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(watched)}
		if err = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, watched, &event); err != nil {
			return fmt.Errorf("watching a descriptor: %w", err)
		}
	}
	return nil
}

// SetDeadline is until when Next waits at most; the zero time is for ever. Deadlines are exact to the
// kernel's timers, not to milliseconds.
func (r *Ring) SetDeadline(t time.Time) {
	if t.IsZero() {
		r.until = 0
		return
	}
	r.until = r.now() + max(int64(time.Until(t)), 0)
}

// Next waits for an event. It returns ErrDeadline when none came in time or Wake was called, and
// os.ErrClosed after Close. It allocates nothing.
func (r *Ring) Next(e *Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.closed.Load() {
			return os.ErrClosed
		}
		if r.read(e) {
			return nil
		}
		if err := r.poll(); err != nil {
			return err
		}
	}
}

// read takes the oldest record, when there is one that is complete.
func (r *Ring) read(e *Event) bool {
	consumed := (*uint64)(unsafe.Pointer(&r.consumer[0]))
	records := r.producer[os.Getpagesize():]
	for {
		at := atomic.LoadUint64(consumed)
		if at >= atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.producer[0]))) {
			return false
		}
		record := records[at&r.mask:]
		length := atomic.LoadUint32((*uint32)(unsafe.Pointer(&record[0])))
		if length&recordBusy != 0 {
			return false // its writer wakes us when it is done
		}
		size := length &^ (recordBusy | recordLost)
		whole := length&recordLost == 0 && uintptr(size) == unsafe.Sizeof(*e)
		if whole {
			*e = *(*Event)(unsafe.Pointer(&record[recordHeader]))
		}
		atomic.StoreUint64(consumed, at+uint64(recordHeader+(size+7)&^7))
		if whole {
			return true
		}
	}
}

// poll sleeps until there is something to read, the deadline passes or the reader is woken.
func (r *Ring) poll() error {
	var limit *unix.Timespec
	if r.until != 0 {
		r.rest = unix.NsecToTimespec(max(r.until-r.now(), 0))
		limit = &r.rest
	}
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(r.epoll), uintptr(unsafe.Pointer(&r.ready[0])),
		uintptr(len(r.ready)), uintptr(unsafe.Pointer(limit)), 0, 0)
	switch {
	case errno == unix.EINTR:
		return nil
	case errno != 0:
		if r.closed.Load() {
			return os.ErrClosed
		}
		return fmt.Errorf("waiting for events: %w", errno)
	case n == 0:
		return ErrDeadline
	}
	for _, ready := range r.ready[:n] {
		if int(ready.Fd) == r.wake && r.woken() {
			return ErrDeadline
		}
	}
	return nil
}

// woken takes a call of Wake back.
func (r *Ring) woken() bool {
	n, err := unix.Read(r.wake, r.count[:])
	return err == nil && n == len(r.count)
}

// one is what Wake adds to the count of an eventfd.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// Wake has Next return ErrDeadline. As the reader then runs on its core, the thread that ran there is
// switched out and in again, and so seen.
func (r *Ring) Wake() {
	_, _ = unix.Write(r.wake, one) // full: it will wake anyway
}

// Close ends Next, now and for ever.
func (r *Ring) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	r.Wake()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.abandon(nil)
}

// abandon lets go of everything and returns err.
func (r *Ring) abandon(err error) error {
	for _, fd := range []int{r.epoll, r.wake} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	for _, memory := range [][]byte{r.consumer, r.producer} {
		if memory != nil {
			_ = unix.Munmap(memory)
		}
	}
	return err
}
