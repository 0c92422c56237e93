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
	for _, held := range []bool{true, true, false} { // the first may meet the reader at once
		ring.Hold(held)
		start := time.Now()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			runtime.GC()
		}()
		select {
		case <-stopped:
			t.Logf("held %t: %v", held, time.Since(start))
		case <-time.After(2 * time.Minute): // far beyond the second after which a reader lets the world stop
			t.Errorf("held %t: a collection has not ended after %v", held, time.Since(start))
			ring.Hold(false)
			<-stopped
		}
	}
	if err := ring.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

// What is woken or held after its end writes to nothing: the numbers of its descriptors may be those of other files.
func TestAClosedRingIsLeftAlone(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	m := open(t, ebpf.Options{})
	ring, err := m.Ring(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Close(); err != nil {
		t.Fatal(err)
	}
	var others []int
	for range 64 {
		other, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, other)
		defer func() { _ = unix.Close(other) }()
	}
	ring.Wake()
	ring.Hold(true)
	for _, other := range others {
		if _, err := unix.Read(other, make([]byte, 8)); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("descriptor %d was written to: %v", other, err)
		}
	}
	var e ebpf.Event
	if err := ring.Next(&e); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Next says %v; want that the ring is closed", err)
	}
}

// A reader whose clock is behind that of the kernel's timers, as after a stall of the machine, does not turn round until it
// is not.
func TestADeadlineIsNotWaitedForTwice(t *testing.T) {
	privileged.Require(t, privileged.Root, privileged.BTF)
	m := open(t, ebpf.Options{})
	ring, err := m.Ring(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, behind := range []time.Duration{0, 5 * time.Millisecond, 36 * time.Millisecond} {
		looks := 0
		ebpf.SetNow(ring, func() int64 { looks++; return ebpf.Monotonic() - behind.Nanoseconds() })
		for _, in := range []time.Duration{-time.Second, 0, time.Millisecond, 2 * time.Millisecond} {
			at := ebpf.Monotonic() + in.Nanoseconds()
			ring.SetDeadline(at)
			var e ebpf.Event
			if err := ring.Next(&e); !errors.Is(err, ebpf.ErrDeadline) {
				t.Fatalf("%v behind, in %v: %v; want the deadline", behind, in, err)
			}
			if now := ebpf.Monotonic(); now < at {
				t.Errorf("%v behind, in %v: %d ns too early", behind, in, at-now)
			}
		}
		if looks > 8 {
			t.Errorf("%v behind: four deadlines took %d looks at the clock", behind, looks)
		}
	}
}
