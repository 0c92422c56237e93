package actuator

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// The self-test: a thread runs in a scratch group until it is stopped, again and again at other phases of
// the tick. The budget is small, because the pot may be nearly empty.
const (
	testRuntimeUs = 1_000
	testPeriodUs  = 20_000
	testSamples   = 8
	testTimeNs    = 170_000_000
	// testStopNs is a pause that cannot be anything but the end of the budget.
	testStopNs = 9_000_000
	// testGiveUpNs is how long a thread may run without being stopped.
	testGiveUpNs = 60_000_000
	// testHeld is how long the kernel may hold the thread. Its group lets it go after a few periods; but a level above that has a period of
	// a minute, and may have been used up by what ran below it before.
	testHeld = 500 * time.Millisecond
)

// errNotEnforced is for a kernel that takes budgets and does nothing about them.
var errNotEnforced = errors.New("the budget is not enforced: the thread was not stopped")

// measured is a backend whose granularity can be measured.
type measured interface {
	measure(ctx context.Context, core int) (int64, error)
}

// MeasureGranularity runs a thread of ours out of its budget on a core, several times within 200 ms, and
// returns how far it came at most, in microseconds: less than this cannot be kept apart from the budget. Where a
// sample stands out it tries up to three times.
func MeasureGranularity(ctx context.Context, b Backend, core int) (int64, error) {
	m, ok := b.(measured)
	if !ok {
		return 0, fmt.Errorf("backend %s has nothing to measure", b.Name())
	}
	// A thread that the kernel holds keeps its place in Go's scheduler, and a process that keeps to one core has but one
	// place. The thread that is to free it needs another.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	us, err := m.measure(ctx, core)
	if err != nil {
		return 0, fmt.Errorf("measuring the granularity of budgets: %w", err)
	}
	return us, nil
}

// endsAtTicks says that nothing but the tick ends a backend's budgets, so that a sample which came off better was lucky. The kernel may have a timer for
// those of deadline servers; for real-time groups and quotas it has none.
func endsAtTicks(b Backend, h host.Host) bool {
	switch b.Name() {
	case FIFO:
		return false
	case HCBS, Deadline:
		features, err := h.SchedFeatures()
		return err != nil || !features["HRTICK_DL"]
	}
	return true
}

func (b *budgeted) measure(ctx context.Context, core int) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	policy := unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}
	if b.name == CFS {
		policy = unix.SchedAttr{Policy: unix.SCHED_NORMAL}
	}
	sample := func() (overrun int64, err error) {
		err = b.tryOut([]string{b.bw.controller()}, func(group string) error {
			overrun, err = b.sample(group, core, policy)
			return err
		})
		return overrun, err
	}
	return mostOf(ctx, sample)
}

// A round with a sample that is so many times the median was disturbed (by the hypervisor, or by real-time tasks
// above ours): another is made, and the best counts. What the kernel itself does late shows in every round.
const (
	testOutlier = 10
	testRounds  = 3
)

// mostOf makes rounds of samples, and returns the largest of the best round in microseconds, rounded up.
func mostOf(ctx context.Context, sample func() (int64, error)) (int64, error) {
	best := int64(-1)
	for range testRounds {
		samples, err := roundOf(ctx, sample)
		if err != nil {
			return 0, err
		}
		if len(samples) == 0 {
			continue
		}
		most, median := samples[len(samples)-1], samples[len(samples)/2]
		if best < 0 || most < best {
			best = most
		}
		if most <= testOutlier*max(median, 1_000) {
			break
		}
	}
	if best < 0 {
		return 0, errors.New("every sample was disturbed: other real-time tasks hold the core, or have used up what a group above that of the test may use")
	}
	return (best + 999) / 1000, nil
}

// roundOf takes samples for as long as the self-test may last, ascending. One below 0 was disturbed and is left out.
func roundOf(ctx context.Context, sample func() (int64, error)) ([]int64, error) {
	begin := clock(unix.CLOCK_MONOTONIC)
	var samples []int64
	for range testSamples {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ns, err := sample()
		if err != nil {
			return nil, err
		}
		if ns >= 0 {
			samples = append(samples, ns)
		}
		if clock(unix.CLOCK_MONOTONIC)-begin > testTimeNs-(testPeriodUs+5_000)*1000 {
			break
		}
	}
	slices.Sort(samples)
	return samples, nil
}

// sample runs a thread in a fresh group until it is stopped.
func (b *budgeted) sample(group string, core int, policy unix.SchedAttr) (overrun int64, err error) {
	budget := Budget{testRuntimeUs, testPeriodUs}
	err = b.lend(group, core, budget, func(files) error {
		return b.onThread([]string{b.bw.controller()}, func(tid int) error {
			if err := pin(tid, core); err != nil {
				return err
			}
			held, err := freed(b.kernel, tid, func() error {
				used, err := untilStopped(func() error { return b.kernel.setAttr(tid, &policy) })
				overrun = used - testRuntimeUs*1000
				return err
			})
			if held {
				overrun = -1
			}
			return err
		})
	})
	return overrun, err
}

// freed runs a function on a thread of ours. Where it has not come back within testHeld, the thread's real-time policy is taken from it:
// no group holds an ordinary one.
func freed(k kernel, tid int, do func() error) (held bool, err error) {
	watching, done, watched := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		timer := time.NewTimer(testHeld)
		defer timer.Stop()
		close(watching)
		select {
		case <-done:
			watched <- nil
		case <-timer.C:
			held = true
			_, err := demote(k, tid)
			watched <- err
		}
	}()
	<-watching
	err = do()
	close(done)
	err = errors.Join(err, <-watched)
	return held, err
}

// pin a thread of ours to a core.
func pin(tid, core int) error {
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("pinning a thread of the self-test to core %d: %w", core, err)
	}
	return nil
}

// untilStopped runs until the thread is stopped for longer than anything but a throttle does, and returns
// how much CPU time it used, in nanoseconds. Its own CPU clock is read only at the end: reading it has the kernel account
// at once what is else accounted at the tick, and so the budget would end on time.
func untilStopped(start func() error) (int64, error) {
	first := clock(unix.CLOCK_THREAD_CPUTIME_ID)
	if err := start(); err != nil {
		return 0, fmt.Errorf("scheduling a thread of the self-test: %w", err)
	}
	begin := clock(unix.CLOCK_MONOTONIC)
	for last := begin; last-begin <= testGiveUpNs; {
		now := clock(unix.CLOCK_MONOTONIC)
		if now-last > testStopNs {
			return clock(unix.CLOCK_THREAD_CPUTIME_ID) - first, nil
		}
		last = now
	}
	return 0, errNotEnforced
}

// measure is how long it takes from the instant when a budget ends, which a timer tells, until its thread has been
// demoted by another on the same core: what the programs' timer and the reader do.
func (b *fifo) measure(ctx context.Context, core int) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return mostOf(ctx, func() (late int64, err error) {
		err = b.kernel.borrow(func(runner int, _ map[string]string) error {
			late, err = b.sample(runner, core)
			return err
		})
		return late, err
	})
}

// sample runs on the thread whose budget ends.
func (b *fifo) sample(runner, core int) (late int64, err error) {
	var over atomic.Bool
	ready, done := make(chan int64), make(chan error, 1)
	go func() {
		done <- b.kernel.borrow(func(tid int, _ map[string]string) error {
			defer over.Store(true)
			if err := errors.Join(pin(tid, core), b.give(int32(tid), unix.SCHED_FIFO, 2)); err != nil {
				close(ready)
				return err
			}
			end := clock(unix.CLOCK_MONOTONIC) + testPeriodUs*1000/4
			ready <- end
			if err := sleepUntil(end); err != nil {
				return err
			}
			err := b.give(int32(runner), unix.SCHED_NORMAL, 0)
			late = clock(unix.CLOCK_MONOTONIC) - end
			return err
		})
	}()
	end := <-ready
	err = errors.Join(pin(runner, core), b.give(int32(runner), unix.SCHED_FIFO, 1))
	for err == nil && !over.Load() && clock(unix.CLOCK_MONOTONIC) < end+testGiveUpNs {
		continue
	}
	return late, errors.Join(err, <-done)
}

// sleepUntil an instant of the monotonic clock, without telling Go's scheduler: it would give what this thread
// needs to run on to others.
func sleepUntil(ns int64) error {
	ts := unix.NsecToTimespec(ns)
	for {
		_, _, e := unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		switch e {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return e
	}
}

// measure a deadline thread of ours.
func (b *deadline) measure(ctx context.Context, _ int) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	policy := deadlineAttr(testRuntimeUs, testPeriodUs, testPeriodUs)
	return mostOf(ctx, func() (overrun int64, err error) {
		err = b.kernel.borrow(func(tid int, _ map[string]string) error {
			used, err := untilStopped(func() error { return b.kernel.setAttr(tid, &policy) })
			overrun = used - testRuntimeUs*1000
			return errors.Join(err, b.kernel.setAttr(tid, &unix.SchedAttr{Policy: unix.SCHED_NORMAL}))
		})
		return overrun, err
	})
}

// clock reads one of the kernel's clocks, in nanoseconds, without telling Go's scheduler.
func clock(id uintptr) int64 {
	var ts unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}
