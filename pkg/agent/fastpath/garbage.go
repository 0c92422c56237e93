package fastpath

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// garbage is how much of it there may be before it is collected.
const garbage = 4 << 20

// heap is what the engine knows of its memory.
type heap struct {
	collecting sync.Mutex
	// kept is how much objects took after the last collection.
	kept uint64

	mu sync.Mutex
	// announced is how many of those who have announced that the world may be stopped are not done yet.
	announced int
}

// collectGarbage collects garbage when there is much, and gives its memory back. The readers let it stop the world meanwhile.
func (e *Engine) collectGarbage() {
	if !e.heap.collecting.TryLock() {
		return // another goroutine collects
	}
	defer e.heap.collecting.Unlock()
	if objects() < e.heap.kept+garbage {
		return
	}
	e.lettingGo(debug.FreeOSMemory) // which collects first
	e.heap.kept = objects()
}

// objects is how much memory they take, those that are garbage included.
func objects() uint64 {
	read := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(read)
	return read[0].Value.Uint64()
}

// lettingGo does something for which the world is stopped, or may be.
func (e *Engine) lettingGo(do func()) {
	e.announce(1)
	defer e.announce(-1)
	do()
}

func (e *Engine) announce(more int) {
	e.heap.mu.Lock()
	defer e.heap.mu.Unlock()
	before := e.heap.announced
	e.heap.announced += more
	if before == 0 || e.heap.announced == 0 {
		e.holdRings(e.Realtime && e.heap.announced == 0)
	}
}

// holdRings has the readers wait without the Go runtime knowing. They would hold up collections, which a process that
// is real-time makes only at moments of its choice.
func (e *Engine) holdRings(on bool) {
	for _, c := range e.cores {
		c.ring.Hold(on)
	}
}
