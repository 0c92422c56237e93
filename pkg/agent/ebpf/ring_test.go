package ebpf_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
	"github.com/mainspring-rt/mainspring/pkg/test/privileged"
)

// inSettledRuntime runs a test in a process whose goroutines are not preempted by signals, as the fast path's are
// not. It says whether this is that process.
func inSettledRuntime(t *testing.T) bool {
	t.Helper()
	const setting = "asyncpreemptoff=1"
	if os.Getenv("GODEBUG") == setting {
		return true
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	command.Env = append(os.Environ(), "GODEBUG="+setting)
	out, err := command.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

// Go's scheduler asks a reader to make room every 10 ms, and one that does changes places with another thread twice
// before it handles the event.
func TestHeldReaderDoesNotMakeRoom(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	if !inSettledRuntime(t) {
		return
	}
	privileged.Machine(t)
	m := open(t, ebpf.Options{Identity: ebpf.IdentityCpuset})
	dir, id := cpusetGroup(t, testName())
	watch(t, m, 1, ebpf.Config{
		BudgetNs: uint64(4 * ms), AlarmNs: uint64(ms), PeriodNs: uint64(20 * ms), Source: ebpf.SourceOwn, Flags: ebpf.FlagAlarm, Generation: 1, Core: 1,
	}, id)
	ring, err := m.Ring(1)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, task{Groups: []string{dir}, Core: 1, Policy: unix.SCHED_FIFO, Prio: 50, Period: 20 * ms, Work: []int64{2 * ms}, Jobs: 60})
	events, switches := make(chan int, 1), make(chan int64, 1)
	go func() {
		runtime.LockOSThread()
		ring.Hold(true)
		n, before := 0, slept()
		var e ebpf.Event
		for {
			err := ring.Next(&e)
			if errors.Is(err, os.ErrClosed) {
				break
			}
			if err == nil {
				n++
			}
		}
		events <- n
		switches <- slept() - before
	}()
	p.let()
	p.wait()
	if err := ring.Close(); err != nil {
		t.Error(err)
	}
	n, slept := <-events, <-switches
	t.Logf("%d events, slept %d times", n, slept)
	// Its timer fires ten times a second; a reader that makes room sleeps 40 times more.
	if n < 40 || slept > int64(n)*5/4+15 {
		t.Errorf("slept %d times for %d events; want about once for each of some 60", slept, n)
	}
}

// slept is how often the calling thread gave up its core.
func slept() int64 {
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &usage) // cannot fail: the thread exists and usage is ours
	return usage.Nvcsw
}

// A collection that nobody announced waits for held readers, but not for ever; one that was does not.
func TestHeldReaderLetsTheWorldStop(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	if !inSettledRuntime(t) {
		return
	}
	m := open(t, ebpf.Options{})
	ring, err := m.Ring(0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		var e ebpf.Event
		for !errors.Is(ring.Next(&e), os.ErrClosed) {
		}
	}()
	for _, held := range []bool{true, false} {
		ring.Hold(held)
		start := time.Now()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for range 3 {
				runtime.GC()
			}
		}()
		select {
		case <-stopped:
			t.Logf("held %t: %v", held, time.Since(start))
		case <-time.After(10 * time.Second): // three collections stop the world or a part of it some twelve times
			t.Errorf("held %t: three collections have not ended after %v", held, time.Since(start))
			ring.Hold(false)
			<-stopped
		}
	}
	if err := ring.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}
