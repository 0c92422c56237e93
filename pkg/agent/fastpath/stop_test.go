package fastpath_test

import (
	"testing"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
)

// What a thread's policy is while we have stopped its server says nothing of the program: sweeps once a second may meet a server
// always at the same place of its period.
func TestRealtimeThreadsAreThoseThatWeHaveStoppedToo(t *testing.T) {
	n, k := stopped(t)
	for range 3 {
		k.change(func() { k.groups["/a"].realtime = 0 })
		n.sweep()
		if a := n.reported("a"); a.RealtimeThreads != 3 {
			t.Fatalf("%d real-time threads while it is stopped; want all three", a.RealtimeThreads)
		}
		n.send(0, n.programs.event(100, ebpf.KindWindow, n.now.Load()))
		k.change(func() { k.groups["/a"].realtime = 3 })
		n.now.Add(1_000_000_000)
		n.send(0, n.programs.event(100, ebpf.KindEnd, n.now.Load()))
	}
	n.send(0, n.programs.event(100, ebpf.KindWindow, n.now.Load()))
	k.change(func() { k.groups["/a"].realtime = 1 })
	n.sweep()
	if a := n.reported("a"); a.RealtimeThreads != 1 {
		t.Errorf("%d real-time threads while it runs; want the one that the kernel has", a.RealtimeThreads)
	}
}

// A server that is stopped or let go while its threads are counted has as many of a real-time policy as before.
func TestRealtimeThreadsAreCountedInOneMoment(t *testing.T) {
	n, k := stopped(t)
	tell := func(kind uint32) { n.send(0, n.programs.event(100, kind, n.now.Load())) }
	for name, c := range map[string]struct{ before, meanwhile []uint32 }{
		"let go":              {[]uint32{ebpf.KindEnd}, []uint32{ebpf.KindWindow}},
		"stopped":             {[]uint32{ebpf.KindWindow}, []uint32{ebpf.KindEnd}},
		"stopped and let go":  {[]uint32{ebpf.KindWindow}, []uint32{ebpf.KindEnd, ebpf.KindWindow}},
		"let go, and stopped": {[]uint32{ebpf.KindEnd}, []uint32{ebpf.KindWindow, ebpf.KindEnd}},
	} {
		for _, kind := range c.before {
			tell(kind)
		}
		k.groups["/a"].realtime = 1 // of three, in the midst of it
		k.groups["/a"].counting = func() {
			for _, kind := range c.meanwhile {
				tell(kind)
			}
		}
		n.sweep()
		if a := n.reported("a"); a.RealtimeThreads != 3 {
			t.Errorf("%s: %d real-time threads; want three", name, a.RealtimeThreads)
		}
	}
}

// Threads of a group that cannot be governed have the policy that the kernel says.
func TestThreadsThatAreNotOursAreNotCountedAsRealtime(t *testing.T) {
	n, k := stopped(t)
	k.change(func() { k.groups["/a"].realtime, k.groups["/a"].checkErr = 0, actuator.ErrBusy })
	n.sweep()
	if a := n.reported("a"); a.RealtimeThreads != 0 {
		t.Errorf("%d real-time threads of a group whose threads could not be made so; want none", a.RealtimeThreads)
	}
}

// The event that lets a stopped server go may be lost. It runs again soon after its window, whether others' events keep coming or not.
func TestALostWindowIsMadeGoodInTime(t *testing.T) {
	const window, late = 10_000_000, 10_000_000
	k := newKernel("/a", "/b")
	k.enforce = true
	n := start(t, k, t.TempDir())
	a, b := high("a", "/a", 0), high("b", "/b", 0)
	a.Criticality, b.Criticality = "Low", "Low"
	n.apply(tableOf(1, a, b))
	n.wake(0)
	ends := n.now.Load() + window // it is at the begin of one
	n.send(0, n.programs.event(100, ebpf.KindEnd, n.now.Load()))
	if got := n.programs.rings[0].until.Load(); got > ends+late {
		t.Errorf("the thread waits for %d us; want until its window is over for 10 ms", (got-n.now.Load())/1000)
	}
	for k.groups["/a"].throttled {
		n.now.Add(100_000) // another server ends and is let go, without a pause
		n.send(0, n.programs.event(101, ebpf.KindEnd, n.now.Load()))
		n.send(0, n.programs.event(101, ebpf.KindWindow, n.now.Load()))
		if n.now.Load() > ends+late {
			t.Fatalf("it is stopped %d us after its window", (n.now.Load()-ends)/1000)
		}
	}
	if n.now.Load() < ends+late {
		t.Errorf("it was let go %d us after its window; want what tells of the next to have 10 ms", (n.now.Load()-ends)/1000)
	}
	if got := n.programs.rings[0].until.Load(); got < n.now.Load()+late {
		t.Errorf("the thread wants to be woken in %d us, for nobody", (got-n.now.Load())/1000)
	}
}
