package fastpath

import (
	"net/http"

	"github.com/mainspring-rt/mainspring/pkg/agent/ebpf"
)

// Handle does what a core's thread does with an event.
func Handle(e *Engine, core int, event *ebpf.Event) { e.cores[core].handle(event) }

// RunCore is the life of a core's thread.
func RunCore(e *Engine, core int) error { return e.cores[core].run() }

// Handler is what Serve answers with.
func Handler(e *Engine) http.Handler { return e.handler() }

// Again is again.
func Again(environment []string) []string { return again(environment) }

// Forgotten is how many evasions of a server the last sweep forgot.
func Forgotten(e *Engine, id string) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.forgotten(e.entries[id])
}

// LettingGo does something for which the world is stopped.
func LettingGo(e *Engine, do func()) { e.lettingGo(do) }

// Decode reads a request's body.
func Decode(w http.ResponseWriter, r *http.Request, into any) error { return decode(w, r, into) }
