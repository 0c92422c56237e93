package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/test/bench/joblog"
)

// loop is the life of the thread. Nothing in it looks whether the Go scheduler wants the thread: that check
// is in the prologue of functions that are not go:nosplit, and would hand the thread's work to another
// thread for some time. System calls are raw for the same reason.
type loop struct {
	period, start, giveUp int64
	demand                []int64
	jobs                  []joblog.Job
	done                  int
	// rate is how many turns of spin take a millisecond of CPU time.
	rate int64
	sink uint64
}

func newLoop(demand []int64, period int64) *loop {
	l := &loop{demand: demand, period: period, jobs: make([]joblog.Job, len(demand))}
	for i := range l.jobs {
		l.jobs[i].Demand = demand[i] // touches the memory, too
	}
	l.calibrate()
	return l
}

// calibrate measures the rate: the best of some rounds, so that a disturbed one does not count.
func (l *loop) calibrate() {
	const turns = 200_000
	for range 5 {
		before := threadCPU()
		l.sink += spin(turns)
		l.rate = max(l.rate, turns*1e6/max(threadCPU()-before, 1))
	}
}

//go:nosplit
func (l *loop) run() {
	for i := range l.demand {
		release := l.start + int64(i)*l.period
		sleepUntil(release)
		before := threadCPU()
		l.burn(before + l.demand[i])
		end := monotonic()
		if end > l.giveUp {
			return
		}
		l.jobs[i].Release, l.jobs[i].Response = release, end-release
		l.jobs[i].CPU = threadCPU() - before
		l.done = i + 1
	}
}

// burn runs until the thread's CPU clock shows the time. It asks the clock seldom: the question makes the
// kernel account for the thread at once, and so would have budgets enforced more finely than those of
// ordinary programs. In long jobs it asks once in a tick of most kernels, which accounts, too: a core that is slower
// for a while than it was when the rate was measured then does not make the job longer.
//
//go:nosplit
func (l *loop) burn(until int64) {
	const closeEnough, slack, chunk = 2_000, 16, 5_000_000
	for {
		left := until - threadCPU()
		if left <= closeEnough {
			return
		}
		left = min(left-left/slack, chunk)
		l.sink += spin(left * l.rate / 1e6)
	}
}

//go:nosplit
func spin(turns int64) uint64 {
	x := uint64(88172645463325252)
	for range turns {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:nosplit
func monotonic() int64 { return clock(unix.CLOCK_MONOTONIC) }

//go:nosplit
func threadCPU() int64 { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

//go:nosplit
func clock(id uintptr) int64 {
	var t unix.Timespec
	// It cannot fail: the clock exists and the pointer is good.
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)), 0)
	return t.Sec*1e9 + t.Nsec
}

//go:nosplit
func sleepUntil(at int64) {
	t := unix.Timespec{Sec: at / 1e9, Nsec: at % 1e9}
	for {
		_, _, e := syscall.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
		if e != unix.EINTR {
			return
		}
	}
}
