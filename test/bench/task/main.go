// Command task is the load of the benchmarks: one periodic thread. It releases a job in every period by an
// absolute clock_nanosleep, runs it for a drawn amount of its own CPU time, and writes at the end when
// each job was released, how long it took to answer and how much it ran. It ends by itself.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/test/bench/joblog"
)

// settings of a task.
type settings struct {
	name             string
	period, deadline time.Duration
	least, most      time.Duration
	overrunLeast     time.Duration
	overrunTo        time.Duration
	ramp             time.Duration
	probability      float64
	seed             uint64
	duration, grace  time.Duration
	align            time.Duration
	start            int64
	policy           string
	priority, core   int
	nice             int
	burst, every     time.Duration
	log              string
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("task", flag.ContinueOnError)
	f.StringVar(&s.name, "name", "task", "name in the log")
	f.DurationVar(&s.period, "period", 10*time.Millisecond, "period of the jobs")
	f.DurationVar(&s.deadline, "deadline", 0, "deadline after the release; 0: the period")
	f.DurationVar(&s.least, "work-least", 0, "least CPU time of an ordinary job; 0: as --work")
	f.DurationVar(&s.most, "work", time.Millisecond, "most CPU time of an ordinary job")
	f.DurationVar(&s.ramp, "ramp", 0, "how much more CPU time each ordinary job needs than the one before")
	f.Float64Var(&s.probability, "overrun", 0, "probability that a job overruns")
	f.DurationVar(&s.overrunLeast, "overrun-least", 0, "least CPU time of a job that overruns")
	f.DurationVar(&s.overrunTo, "overrun-most", 0, "most CPU time of a job that overruns")
	f.DurationVar(&s.burst, "burst", 0, "how long a burst of overruns is")
	f.DurationVar(&s.every, "burst-every", 0, "how often there is a burst of overruns, the first after half of this; 0: any job may overrun")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the jobs")
	f.DurationVar(&s.duration, "duration", 10*time.Second, "for how long jobs are released")
	f.DurationVar(&s.grace, "grace", 2*time.Second, "how long after that the task goes on with jobs that are late")
	f.DurationVar(&s.align, "align", 100*time.Millisecond, "the first release is a multiple of this on the monotonic clock")
	f.Int64Var(&s.start, "start", 0, "the first release is not before this time of the monotonic clock, in nanoseconds")
	f.StringVar(&s.policy, "policy", "", "scheduling policy: fifo or other; empty: as started")
	f.IntVar(&s.priority, "priority", 50, "priority of policy fifo")
	f.IntVar(&s.nice, "nice", 0, "nice value of policy other")
	f.IntVar(&s.core, "core", -1, "core to stay on; -1: as started")
	f.StringVar(&s.log, "log", "", "file for the log; empty: none")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if s.deadline == 0 {
		s.deadline = s.period
	}
	if s.least == 0 {
		s.least = s.most
	}
	return s, s.validate()
}

func (s settings) validate() error {
	switch {
	case s.period <= 0:
		return fmt.Errorf("--period %s: want above 0", s.period)
	case s.duration < s.period || int64(s.duration/s.period) > joblog.MaxJobs:
		return fmt.Errorf("--duration %s: want from one to %d periods of %s", s.duration, joblog.MaxJobs, s.period)
	case s.align <= 0:
		return fmt.Errorf("--align %s: want above 0", s.align)
	case s.policy != "" && s.policy != "fifo" && s.policy != "other":
		return fmt.Errorf("--policy %q: want fifo or other", s.policy)
	case s.policy == "fifo" && (s.priority < 1 || s.priority > 99):
		return fmt.Errorf("--priority %d: want 1 to 99", s.priority)
	case s.nice < -20 || s.nice > 19:
		return fmt.Errorf("--nice %d: want -20 to 19", s.nice)
	}
	return s.demand().Validate()
}

func (s settings) demand() joblog.Demand {
	return joblog.Demand{
		Least: int64(s.least), Most: int64(s.most), Probability: s.probability,
		OverrunLeast: int64(s.overrunLeast), OverrunTo: int64(s.overrunTo), Ramp: int64(s.ramp),
		BurstEvery: s.jobsIn(s.every), Burst: s.jobsIn(s.burst),
	}
}

// jobsIn is how many jobs are released in a time, at least one in a time that is set.
func (s settings) jobsIn(d time.Duration) int {
	if d == 0 {
		return 0
	}
	return max(1, int(d/s.period))
}

func main() {
	s, err := parse(os.Args[1:])
	if err == nil {
		err = run(s)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "task %s: %v\n", s.name, err)
		os.Exit(1)
	}
}

// noPreemption keeps the runtime from interrupting the loop by signals. It is read when a program starts.
const noPreemption = "asyncpreemptoff=1"

func run(s settings) error {
	if os.Getenv("GODEBUG") != noPreemption {
		return startAgain()
	}
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		fmt.Fprintf(os.Stderr, "task %s: memory is not locked: %v\n", s.name, err)
	}
	n := int(s.duration / s.period)
	l := newLoop(s.demand().Draw(s.seed, n), int64(s.period))
	if err := nameThread(s.name); err != nil {
		return err
	}
	if err := s.place(); err != nil { // last: what it takes to start is no job of the task
		return err
	}
	l.start = (max(monotonic()+int64(s.align), s.start)/int64(s.align) + 1) * int64(s.align)
	l.giveUp = l.start + int64(s.duration+s.grace)
	l.run()
	if s.log == "" {
		return nil
	}
	log := joblog.Log{Name: s.name, Period: int64(s.period), Deadline: int64(s.deadline), Released: n, Jobs: l.jobs[:l.done]}
	return log.Write(s.log)
}

// nameThread gives the thread the task's name, for traces.
func nameThread(name string) error {
	text, err := unix.BytePtrFromString(name)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("naming the thread: %w", err)
	}
	return nil
}

func startAgain() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	if err := os.Setenv("GODEBUG", noPreemption); err != nil {
		return fmt.Errorf("setting GODEBUG: %w", err)
	}
	return fmt.Errorf("starting again: %w", unix.Exec(self, os.Args, os.Environ()))
}

// place gives the thread its core and policy. A real-time thread may run no longer without a pause than the
// task is to live: the kernel then ends it (RLIMIT_RTTIME).
func (s settings) place() error {
	if s.core >= 0 {
		var set unix.CPUSet
		set.Set(s.core)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("staying on core %d: %w", s.core, err)
		}
	}
	limit := uint64((s.duration + s.grace).Microseconds())
	if err := unix.Setrlimit(unix.RLIMIT_RTTIME, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return fmt.Errorf("limiting real-time to %d us: %w", limit, err)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Nice: int32(s.nice)}
	switch s.policy {
	case "":
		return nil
	case "fifo":
		attr.Policy, attr.Priority = unix.SCHED_FIFO, uint32(s.priority)
	}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("taking policy %s: %w", s.policy, err)
	}
	return nil
}
