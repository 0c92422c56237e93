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

// A held reader waits in the open for openFor, in nanoseconds, when each holdFor of its clock begins: the Go runtime knows of that wait,
// and can stop the world or scan the reader's stack. A collection needs that several times. All readers do so at the same time, as the
// world stops only when the last does. An event of that time costs tens of microseconds more, if the core of the runtime's threads has
// time for them: so it is rare. It lasts as long as it does because a thread that asks for the stop on a loaded machine looks rarely.
const (
	holdFor = int64(time.Second)
	openFor = int64(time.Millisecond)
)

// Ring is the stream of events of one core. Next and SetDeadline belong to one thread; Wake, Hold and Close may be
// called by others.
//
// The library's reader waits in whole milliseconds and takes two locks for an event. This one does neither.
type Ring struct {
	epoll    int
	wake     int
	timer    int
	consumer []byte
	producer []byte
	records  []byte // of the producer's memory, after its page
	mask     uint64
	now      func() int64
	closed   atomic.Bool
	held     atomic.Bool

	waking sync.Mutex // held by those who write to wake, and by Close: the descriptor goes after it

	mu    sync.Mutex // held by Next: the memory goes after it
	until int64      // CLOCK_MONOTONIC ns; 0: for ever
	armed int64      // when the timer fires; 0: it does not
	shown int64      // when the reader last began to wait in the open
	ready [3]unix.EpollEvent
	count [8]byte
}

// newRing maps the memory of a BPF ring buffer of size bytes.
func newRing(fd, size int, now func() int64) (*Ring, error) {
	r := &Ring{epoll: -1, wake: -1, timer: -1, mask: uint64(size - 1), now: now}
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
	r.records = r.producer[page:]
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("creating an epoll descriptor: %w", err)
	}
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("creating an eventfd: %w", err)
	}
	if r.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return fmt.Errorf("creating a timer: %w", err)
	}
	return r.watch(fd)
}

// watch has epoll tell of the ring and of what else ends a wait. The ring is always read until it is empty, and each of
// its records wakes: so only what comes new needs to be told (EPOLLET), which spares a look at the ring in every wait.
func (r *Ring) watch(fd int) error {
	for watched, how := range map[int]uint32{fd: unix.EPOLLIN | unix.EPOLLET, r.wake: unix.EPOLLIN, r.timer: unix.EPOLLIN} {
		event := unix.EpollEvent{Events: how, Fd: int32(watched)}
		if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, watched, &event); err != nil {
			return fmt.Errorf("watching a descriptor: %w", err)
		}
	}
	return nil
}

// SetDeadline is until when Next waits at most, in nanoseconds of CLOCK_MONOTONIC; 0 is for ever. It is exact to
// the kernel's timers, not to milliseconds, and costs a system call only when it is earlier than those before.
func (r *Ring) SetDeadline(at int64) { r.until = at }

// Hold has Next wait without the Go runtime knowing, unless the ring is closed. Its scheduler then neither takes the reader's place from it
// nor has to give one back, which costs more than the event itself. The world cannot be stopped meanwhile: once a
// second the reader waits in the open for that. The fast path lets go before it collects garbage.
func (r *Ring) Hold(on bool) {
	r.held.Store(on)
	r.Wake()
}

// Next waits for an event. It returns ErrDeadline when none came in time or Wake or Hold was called, and
// os.ErrClosed after Close. It allocates nothing.
func (r *Ring) Next(e *Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed.Load() && r.read(e) {
		return nil
	}
	for {
		if r.closed.Load() {
			return os.ErrClosed
		}
		held := r.held.Load() // a change of it wakes
		open := held && r.opens()
		if err := r.arm(held, open); err != nil {
			return err
		}
		took, err := r.wait(e, held && !open)
		if took || err != nil {
			return err
		}
	}
}

// read takes the oldest record, when there is one that is complete.
func (r *Ring) read(e *Event) bool {
	consumed := (*uint64)(unsafe.Pointer(&r.consumer[0]))
	for {
		at := atomic.LoadUint64(consumed)
		if at >= atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.producer[0]))) {
			return false
		}
		record := r.records[at&r.mask:]
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

// opens tells whether a held reader is to wait in the open, and notes when it begins to. An event does not end that.
func (r *Ring) opens() bool {
	now := r.now()
	if now/holdFor != r.shown/holdFor {
		r.shown = now
	}
	return now-r.shown < openFor
}

// arm has the timer fire by the deadline. One that fires earlier is left as it is: setting it costs more than
// waking once too early.
func (r *Ring) arm(held, open bool) error {
	until, soonest := r.until, (r.shown/holdFor+1)*holdFor
	if open {
		soonest = r.shown + openFor
	}
	if held && (until == 0 || until > soonest) {
		until = soonest
	}
	if until == 0 || r.armed != 0 && r.armed <= until {
		return nil
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(until, 1))}
	if err := unix.TimerfdSettime(r.timer, unix.TFD_TIMER_ABSTIME, &at, nil); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
	r.armed = until
	return nil
}

// wait sleeps until there is something to read, which it then reads, the deadline passes or the reader is woken.
func (r *Ring) wait(e *Event, pinned bool) (took bool, err error) {
	n, errno := r.sleep(pinned)
	if r.read(e) {
		return true, nil // whatever else is ready will be told again
	}
	return false, r.judge(n, errno)
}

func (r *Ring) sleep(pinned bool) (ready int, errno unix.Errno) {
	epoll, to, most := uintptr(r.epoll), uintptr(unsafe.Pointer(&r.ready[0])), uintptr(len(r.ready)) // r does not move
	var n uintptr
	if pinned {
		procPin()
		n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, epoll, to, most, forEver, 0, 0)
		unpin()
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT, epoll, to, most, forEver, 0, 0)
	}
	return int(n), errno
}

// forEver is -1, no limit, as an argument of a system call.
const forEver = ^uintptr(0)

// judge says why a wait ended; nil: look again.
func (r *Ring) judge(n int, errno unix.Errno) error {
	switch {
	case errno == unix.EINTR:
		return nil
	case errno != 0:
		if r.closed.Load() {
			return os.ErrClosed
		}
		return fmt.Errorf("waiting for events: %w", errno)
	}
	var ended error
	for _, ready := range r.ready[:n] {
		switch int(ready.Fd) {
		case r.wake:
			if r.taken(r.wake) {
				ended = ErrDeadline
			}
		case r.timer:
			if r.fired() {
				ended = ErrDeadline
			}
		}
	}
	return ended
}

// fired says that the deadline has passed. The timer itself tells: were another look at the clock to decide, and that a
// little behind, the timer would be set to what is past, and fire at once, until it is not.
func (r *Ring) fired() bool {
	at := r.armed
	if !r.taken(r.timer) {
		return false
	}
	r.armed = 0
	return r.until != 0 && (at >= r.until || r.now() >= r.until)
}

// taken takes back what a descriptor has counted. It does not block.
func (r *Ring) taken(fd int) bool {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&r.count[0])), uintptr(len(r.count)))
	return errno == 0 && int(n) == len(r.count)
}

// one is what Wake adds to the count of an eventfd.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// Wake has Next return ErrDeadline, unless the ring is closed. As the reader then runs on its core, the thread that ran
// there is switched out and in again, and so seen.
func (r *Ring) Wake() {
	r.waking.Lock()
	defer r.waking.Unlock()
	if r.wake >= 0 {
		_, _ = unix.Write(r.wake, one) // full: it will wake anyway
	}
}

// Close ends Next, now and for ever.
func (r *Ring) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	r.Wake()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waking.Lock()
	defer r.waking.Unlock()
	return r.abandon(nil)
}

// abandon lets go of everything and returns err.
func (r *Ring) abandon(err error) error {
	for _, fd := range []*int{&r.epoll, &r.wake, &r.timer} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
		}
		*fd = -1 // the number may be another file's by now
	}
	for _, memory := range [][]byte{r.consumer, r.producer} {
		if memory != nil {
			_ = unix.Munmap(memory)
		}
	}
	r.consumer, r.producer, r.records = nil, nil, nil
	return err
}
