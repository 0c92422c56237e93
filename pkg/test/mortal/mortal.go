// Package mortal connects processes under test to an API server which may die at any of their writes.
package mortal

import (
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrDied is what a process that has died is told of every call that it would still have made.
var ErrDied = errors.New("the process died")

// Life is that of processes that follow one another.
type Life struct {
	// Writes that they have made, and tried. Dry runs are none.
	Writes int
	// DieAt is the number, from 1, of the write before which a process dies; 0: none does. To die after a write is to die
	// before the next one.
	DieAt int
}

// Process is one that knows nothing of its predecessors. It makes one call at a time.
type Process struct {
	client.WithWatch
	life *Life
	dead bool
}

// Process begins one.
func (l *Life) Process(api client.WithWatch) *Process {
	p := &Process{life: l}
	p.WithWatch = Guarded(api, p.read, p.write)
	return p
}

// Dead tells whether it has died.
func (p *Process) Dead() bool { return p.dead }

func (p *Process) read(call func() error) error {
	if p.dead {
		return ErrDied
	}
	return call()
}

func (p *Process) write(call func() error) error {
	if p.dead {
		return ErrDied
	}
	p.life.Writes++
	if p.dead = p.life.Writes == p.life.DieAt; p.dead {
		return ErrDied
	}
	return call()
}
