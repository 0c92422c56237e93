package fastpath

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keeper keeps a place of the Go scheduler busy, almost without using the CPU. When all places are idle the
// scheduler's monitor sleeps, and the first thread that comes back from a system call, a reader with an
// event, must wake it: some ten microseconds on the fast path. It waits in the kernel without telling the
// scheduler, so that the world cannot be stopped for a collection meanwhile: hence without, and a bound.
type keeper struct {
	event int
	leave chan chan struct{}
	ended chan struct{}
}

// keepFor bounds a wait, and so how long a collection that nobody announced is held up.
const keepFor = 10 * time.Millisecond

func newKeeper() (*keeper, error) {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("creating an eventfd: %w", err)
	}
	return &keeper{event: event, leave: make(chan chan struct{}, 1), ended: make(chan struct{})}, nil
}

// run waits until end.
func (k *keeper) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(k.ended)
	var count [8]byte
	poll := unix.PollFd{Fd: int32(k.event), Events: unix.POLLIN}
	for {
		// The runtime is not told: RawSyscall.
		limit := unix.NsecToTimespec(keepFor.Nanoseconds())
		_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&poll)), 1, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
		_, _ = unix.Read(k.event, count[:]) // so that the next wait waits; mostly there is nothing
		select {
		case back := <-k.leave:
			if back == nil {
				return
			}
			<-back
		default:
		}
	}
}

// without does something while the place is not kept.
func (k *keeper) without(do func()) {
	back := make(chan struct{})
	k.call(back)
	do()
	close(back)
}

// end ends run, and returns when it has ended.
func (k *keeper) end() {
	k.call(nil)
	<-k.ended
	_ = unix.Close(k.event)
}

// call has run look at what it is told at once.
func (k *keeper) call(back chan struct{}) {
	k.leave <- back
	// It fails only when the count is full, and then run is awake, too.
	_, _ = unix.Write(k.event, binary.NativeEndian.AppendUint64(nil, 1))
}
