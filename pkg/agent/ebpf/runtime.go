package ebpf

import _ "unsafe" // go:linkname

// Every 10 ms Go's scheduler asks a goroutine that seems to run for long to make room. It does so at its next call of a
// function, and for one that is locked to its thread that means that two threads change places twice: tens of
// microseconds, which an event has to wait. A goroutine that is pinned may refuse. procPin pins it until procUnpin; it must
// not block meanwhile. The runtime keeps these names for programs that use them (go.dev/issue/67401); without one this does
// not link.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// unpin drops a request that came meanwhile: it is looked for when a function is called that calls others, this one,
// and the goroutine is still pinned then.
//
//go:noinline
func unpin() { procUnpin() }

// Monotonic is CLOCK_MONOTONIC in nanoseconds: the programs' clock, read without a system call.
//
//go:linkname Monotonic runtime.nanotime
func Monotonic() int64
