package usage

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Latest is what was read last of nodes, for others than who asks the source. It is safe for concurrent use, and knows nothing until it was told.
type Latest struct {
	clock  clock.PassiveClock
	maxAge time.Duration
	lock   sync.Mutex
	found  map[string]Usage
}

// NewLatest makes one that believes readings up to an age.
func NewLatest(clk clock.PassiveClock, maxAge time.Duration) *Latest {
	return &Latest{clock: clk, maxAge: maxAge}
}

// Keep takes what was read in place of what it knew. Nobody may change that afterwards.
func (l *Latest) Keep(found map[string]Usage) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.found = found
}

// Load is the share of a node's CPU or memory, whichever is more, that is in use. It is known where both are.
func (l *Latest) Load(node string) (used float64, known bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	u := l.found[node].Fresh(l.clock.Now(), l.maxAge)
	if !u.CPU.Known() || !u.Memory.Known() {
		return 0, false
	}
	return max(u.CPU.Ratio, u.Memory.Ratio), true
}
