// Command load is the program of real containers in tests: a thread with a real-time policy that works for
// a part of every period, and for longer when it is told to. It is told by signals: SIGUSR1 to overrun,
// SIGUSR2 to go back. Without --work it only waits.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	period := flag.Duration("period", 20*time.Millisecond, "period of the work")
	work := flag.Duration("work", 0, "CPU time in every period")
	overrun := flag.Duration("overrun", 0, "CPU time in every period of an overrun")
	flag.Parse()

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2)
	var demand atomic.Int64
	demand.Store(int64(*work))
	if *work > 0 {
		go run(*period, &demand)
	}
	for s := range signals {
		switch s {
		case syscall.SIGUSR1:
			demand.Store(int64(*overrun))
		case syscall.SIGUSR2:
			demand.Store(int64(*work))
		default:
			return
		}
	}
}

// run is the real-time thread. A group without a real-time budget refuses the policy: it asks again until
// there is one.
func run(period time.Duration, demand *atomic.Int64) {
	runtime.LockOSThread()
	param := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10}
	for try := 0; ; try++ {
		err := unix.SchedSetAttr(0, param, 0)
		if err == nil {
			break
		}
		if try%50 == 0 {
			fmt.Println("asking for SCHED_FIFO:", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println("running with SCHED_FIFO")
	next := now(unix.CLOCK_MONOTONIC)
	for {
		burn(demand.Load())
		next += int64(period)
		if late := now(unix.CLOCK_MONOTONIC) - next; late > 0 {
			next += (late/int64(period) + 1) * int64(period) // jobs that were missed are not made up for
		}
		until := unix.NsecToTimespec(next)
		for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) != nil {
			continue // a signal
		}
	}
}

// burn uses CPU time of this thread, in nanoseconds.
func burn(ns int64) {
	for end := now(unix.CLOCK_THREAD_CPUTIME_ID) + ns; now(unix.CLOCK_THREAD_CPUTIME_ID) < end; {
		continue
	}
}

func now(clock int32) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}
