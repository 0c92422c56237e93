package actuator

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// gate lets the hot side in until it is shut; shutting waits for the calls inside. Without it a descriptor could be closed, and
// its number given to another file, between the hot side's look at it and its write.
type gate struct {
	inside atomic.Int32
	shut   atomic.Bool
}

// enter says whether the gate is open; then leave must follow. HOT.
func (g *gate) enter() bool {
	g.inside.Add(1)
	if g.shut.Load() {
		g.inside.Add(-1)
		return false
	}
	return true
}

func (g *gate) leave() { g.inside.Add(-1) }

// lock the gate; the hot side is inside for microseconds.
func (g *gate) lock(pause func(time.Duration)) {
	g.shut.Store(true)
	for g.inside.Load() > 0 {
		pause(50 * time.Microsecond)
	}
}

// hotFile is a file open for Set, with what surrounds the runtime in it.
type hotFile struct {
	gate
	file           control
	prefix, suffix string
	// Budgets are written times, divided by; both 1 where the file holds them as they are, and at least least.
	times, by, least int64
	buf              [64]byte
}

func openHot(f files, name, prefix, suffix string) (*hotFile, error) {
	c, err := f.control(name)
	if err != nil {
		return nil, fmt.Errorf("opening %s for writing: %w", name, asGone(err))
	}
	return &hotFile{file: c, prefix: prefix, suffix: suffix, times: 1, by: 1}, nil
}

// set writes a runtime. HOT.
func (h *hotFile) set(runtimeUs int64) error {
	if !h.enter() {
		return ErrGone
	}
	b := append(h.buf[:0], h.prefix...)
	b = strconv.AppendInt(b, max(h.least, runtimeUs*h.times/h.by), 10)
	b = append(b, h.suffix...)
	err := typed(h.file.write(b))
	h.leave()
	return err
}

func (h *hotFile) close(pause func(time.Duration)) error {
	h.lock(pause)
	return h.file.close()
}
