package fastpath

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/lean"
)

// started marks a process that has started itself again under a real-time policy.
const started = "MAINSPRING_FASTPATH_REALTIME"

// heapLimit is from how much memory on garbage is collected whatever the threads do. The engine collects earlier,
// at moments of its choice.
const heapLimit = 64 << 20

// Become starts the program again with policy SCHED_FIFO, on the given cores, so that every thread of the Go runtime
// inherits both: a runtime thread at an ordinary policy would hold up the readers behind the tasks that use its core. It
// returns only in the program that was started again, or with an error in one that may not be real-time. Cores are those
// for the slow half, none means any.
func Become(priority int, cores []int) error {
	if os.Getenv(started) != "" {
		return os.Unsetenv(started)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if len(cores) > 0 {
		var set unix.CPUSet
		for _, c := range cores {
			set.Set(c)
		}
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("moving to cores %v: %w", cores, err)
		}
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: uint32(priority)}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("becoming SCHED_FIFO %d: %w", priority, err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	return fmt.Errorf("starting again: %w", unix.Exec(self, os.Args, again(os.Environ())))
}

// again is the environment of the program that was started again. The Go scheduler would interrupt readers that
// wait every 10 ms to have them make room for others. And its background sweeper spins, without giving up its core,
// while another thread is in the midst of sweeping (golang.org/issue/73499): under SCHED_FIFO, and with that thread
// on the same core, neither gets on until the kernel throttles both. So collections, which come at moments of our
// choice, sweep before they end. Of several settings of the same name in GODEBUG the last counts, of several GODEBUG
// the first.
func again(environment []string) []string {
	const name, ours = "GODEBUG=", "asyncpreemptoff=1,gcstoptheworld=2"
	out, given := make([]string, 0, len(environment)+2), false
	for _, s := range environment {
		settings, is := strings.CutPrefix(s, name)
		switch {
		case !is:
			out = append(out, s)
		case !given:
			given = true
			out = append(out, name+strings.TrimPrefix(settings+","+ours, ","))
		}
	}
	if !given {
		out = append(out, name+ours)
	}
	return append(out, started+"=1")
}

// Realtime says whether every thread of the process has policy SCHED_FIFO.
func Realtime() (bool, error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return false, fmt.Errorf("listing our threads: %w", err)
	}
	for _, e := range entries {
		var tid int
		if _, err := fmt.Sscan(e.Name(), &tid); err != nil {
			return false, fmt.Errorf("reading thread %q: %w", e.Name(), err)
		}
		attr, err := unix.SchedGetAttr(tid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("reading the policy of thread %d: %w", tid, err)
		}
		if attr.Policy != unix.SCHED_FIFO {
			return false, nil
		}
	}
	return true, nil
}

// Settle ends starting. What only that needed is given back; from now on memory stays where it is and garbage off the path:
// pages are locked once they are touched (mlockall(2), MCL_ONFAULT), and garbage is collected at moments of the engine's
// choice. Every reader gets a place of its own in the Go scheduler, beside the slow half. Call it before Run.
func (e *Engine) Settle() {
	runtime.GOMAXPROCS(len(e.Cores) + 2)
	if err := lean.Trim(false); err != nil {
		e.Missing = append(e.Missing, fmt.Sprintf("%v: more memory is used than needed", err))
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(heapLimit)
	err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	e.Locked = err == nil
	if err != nil {
		e.Missing = append(e.Missing, fmt.Sprintf("locking memory: %v: a page fault may delay a reaction", err))
	}
}
