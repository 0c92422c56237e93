package ebpf_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// taskEnv has the test binary be a real-time task instead of a test.
const taskEnv = "MAINSPRING_TEST_TASK"

func TestMain(m *testing.M) {
	for env, do := range map[string]func(string) error{taskEnv: beTask, rightsEnv: tryRights} {
		text, found := os.LookupEnv(env)
		if !found {
			continue
		}
		if err := do(text); err != nil {
			fmt.Fprintln(os.Stderr, env, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// task is what a real-time task does: Jobs of Work CPU time, released every Period. Before the first it
// says that it is ready, and waits for a line.
type task struct {
	Groups  []string // directories whose tasks file each thread is written to
	Core    int
	Policy  uint32
	Prio    uint32
	Runtime uint64 // of SCHED_DEADLINE
	Period  int64
	Work    []int64 // of the jobs in turn
	Jobs    int
	Threads int
	// Relative has it sleep by a timer instead of until absolute times.
	Relative bool
	// Clock by which it sleeps until absolute times; 0: CLOCK_MONOTONIC. By another one each job blocks once in its midst: whoever
	// takes it for what lies between a wake-up and the next block sees two.
	Clock uintptr
	// Wall has it work by the time that passes. Its own CPU time it must ask the kernel for, which then looks at budgets
	// more often than it does for other programs.
	Wall bool
	// Behind has it run with a clock that is 100 s behind ours, as what was restored from a checkpoint does.
	Behind bool
}

// job is what the task itself saw of one.
type job struct{ Release, Woken, End int64 }

// clock reads a clock. It and what else runs in jobs calls the kernel past the Go scheduler, and has no stack
// checks: it would have the thread block once more, where its job is not done.
//
//go:nosplit
//go:norace
func clock(id uintptr) int64 {
	var t unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)), 0)
	return t.Sec*1e9 + t.Nsec
}

func beTask(text string) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	logs := make([][]job, max(t.Threads, 1))
	errs := make(chan error, len(logs))
	var ready sync.WaitGroup
	var base atomic.Int64
	// The kernel lets the threads go when the pipe is closed, and each has a P to go on with: the Go scheduler would let them go by ordinary threads,
	// which on a busy machine come later than the first jobs.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + len(logs))
	var start [2]int
	if err := unix.Pipe2(start[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	for i := range logs {
		ready.Add(1)
		go func() {
			runtime.LockOSThread() // for good: the policy ends with the thread
			err := t.join()
			ready.Done()
			if err == nil {
				for _, err := unix.Read(start[0], make([]byte, 1)); err == unix.EINTR; _, err = unix.Read(start[0], make([]byte, 1)) {
				}
				base.CompareAndSwap(0, clock(unix.CLOCK_MONOTONIC))
				logs[i] = t.run(base.Load())
			}
			errs <- err
		}()
	}
	ready.Wait()
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := unix.Close(start[1]); err != nil {
		return err
	}
	for range logs {
		if err := <-errs; err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(logs)
}

// join gives the thread its groups, core and policy.
func (t task) join() error {
	tid := unix.Gettid()
	for _, dir := range t.Groups {
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte(strconv.Itoa(tid)), 0); err != nil {
			return err
		}
	}
	if t.Policy != unix.SCHED_DEADLINE {
		var set unix.CPUSet
		set.Set(t.Core)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("pinning to core %d: %w", t.Core, err)
		}
	}
	attr := unix.SchedAttr{Size: uint32(unsafe.Sizeof(unix.SchedAttr{})), Policy: t.Policy, Priority: t.Prio}
	if t.Policy == unix.SCHED_DEADLINE {
		attr.Runtime, attr.Deadline, attr.Period = t.Runtime, uint64(t.Period), uint64(t.Period)
	}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("setting policy %d: %w", t.Policy, err)
	}
	return nil
}

// leave takes the thread back to the root of its hierarchy, as an ordinary one. A thread ends with its
// goroutine, but for the first of a process.
func leave(root string) error {
	attr := unix.SchedAttr{Size: uint32(unsafe.Sizeof(unix.SchedAttr{})), Policy: unix.SCHED_NORMAL}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "tasks"), []byte(strconv.Itoa(unix.Gettid())), 0)
}

// run does the jobs. The first is released one and a half periods after base, so that jobs lie in the midst of
// the kernel's windows, which begin when the thread is let go.
func (t task) run(base int64) []job {
	jobs := make([]job, t.Jobs)
	t.work(jobs, base+t.Period+t.Period/2)
	return jobs
}

//go:nosplit
//go:norace
func (t *task) work(jobs []job, release int64) {
	for i := range jobs {
		t.sleep(release)
		woken := clock(unix.CLOCK_MONOTONIC)
		if t.Clock != 0 {
			burn(t.clock(), t.Work[i%len(t.Work)]/2)
			blink()
			burn(t.clock(), t.Work[i%len(t.Work)]/2)
		} else {
			burn(t.clock(), t.Work[i%len(t.Work)])
		}
		jobs[i] = job{release, woken, clock(unix.CLOCK_MONOTONIC)}
		release += t.Period
	}
	t.sleep(release) // ends the last job
}

//go:nosplit
//go:norace
func (t *task) sleep(until int64) {
	for {
		rest := until - clock(unix.CLOCK_MONOTONIC)
		spec := unix.Timespec{Sec: until / 1e9, Nsec: until % 1e9}
		if t.Clock != 0 {
			own := clock(t.Clock) + rest
			spec = unix.Timespec{Sec: own / 1e9, Nsec: own % 1e9}
			_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, t.Clock, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
		} else if !t.Relative {
			_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
		} else if rest > 0 {
			spec = unix.Timespec{Sec: rest / 1e9, Nsec: rest % 1e9}
			_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
		}
		if clock(unix.CLOCK_MONOTONIC) >= until {
			return
		}
	}
}

// blink blocks for a moment.
//
//go:nosplit
//go:norace
func blink() {
	spec := unix.Timespec{Nsec: 100_000}
	_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

//go:nosplit
//go:norace
func (t *task) clock() uintptr {
	if t.Wall {
		return unix.CLOCK_MONOTONIC
	}
	return unix.CLOCK_THREAD_CPUTIME_ID
}

// burn uses CPU time of the thread until that much has passed on a clock.
//
//go:nosplit
//go:norace
func burn(id uintptr, ns int64) {
	for end := clock(id) + ns; clock(id) < end; {
	}
}

// process is a task that runs.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    *os.File
	lines *bufio.Reader
}

// start starts a task and waits until it has its policy and groups.
func start(t *testing.T, what task) *process {
	t.Helper()
	text, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	if what.Behind {
		cmd = exec.CommandContext(t.Context(), "unshare", "--time", "--fork", "--kill-child", "--monotonic=-100", "--", os.Args[0])
	}
	cmd.Env = append(os.Environ(), taskEnv+"="+string(text), "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	cmd.Stdin, cmd.Stderr = read, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	p := &process{t: t, cmd: cmd, in: write, lines: bufio.NewReader(out)}
	t.Cleanup(p.stop)
	if _, err := p.lines.ReadString('\n'); err != nil {
		t.Fatalf("waiting for the task: %v", err)
	}
	return p
}

// let has the task begin.
func (p *process) let() {
	p.t.Helper()
	if _, err := p.in.WriteString("go\n"); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the task's end and returns its logs by thread.
func (p *process) wait() [][]job {
	p.t.Helper()
	var logs [][]job
	if err := json.NewDecoder(p.lines).Decode(&logs); err != nil {
		p.t.Fatalf("reading the task's log: %v", err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("the task: %v", err)
	}
	return logs
}

func (p *process) stop() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
	_ = p.in.Close()
}
