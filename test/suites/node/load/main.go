//go:debug multipathtcp=0

// Command load is the program of real containers in tests: a thread with a real-time policy that works for
// a part of every period, and for longer when it is told to. It is told by signals: SIGUSR1 to overrun,
// SIGUSR2 to go back. Without --work it only waits. With --listen it counts, its jobs or tenths of seconds, and tells over
// HTTP how far it has come and who it is: a number that it drew when it began. With --hold it keeps a file open.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
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
	listen := flag.String("listen", "", "address to serve the count on; empty: none")
	hold := flag.String("hold", "", "file to keep open; empty: none")
	flag.Parse()
	if *hold != "" {
		defer keep(*hold).Close()
	}
	if *listen != "" {
		go serve(*listen)
	}

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2)
	var demand atomic.Int64
	demand.Store(int64(*work))
	if *work > 0 {
		go run(*period, &demand)
	} else if *listen != "" {
		go count()
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

// keep opens a file, which must be there.
func keep(path string) *os.File {
	file, err := os.Open(path)
	if err != nil {
		fmt.Println("opening the file to hold:", err)
		os.Exit(1)
	}
	return file
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
		counted.Add(1)
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

// counted is in memory and nowhere else.
var counted atomic.Int64

func count() {
	for range time.Tick(100 * time.Millisecond) {
		counted.Add(1)
	}
}

// serve tells the count.
func serve(address string) {
	self := rand.Int64()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"self":%d,"count":%d}`, self, counted.Load())
	})
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: time.Second}
	server.SetKeepAlivesEnabled(false) // a connection that is open cannot be taken along
	fmt.Println("serving:", server.ListenAndServe())
	os.Exit(1)
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
