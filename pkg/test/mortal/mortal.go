// Package mortal connects processes under test to an API server which may die at any of their writes.
package mortal

import (
	"errors"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrDied is what a process that has died is told of every call that it would still have made.
var ErrDied = errors.New("the process died")

// Life is that of processes that follow one another. It is read when they are at rest.
type Life struct {
	// Writes that they have made, and tried. Dry runs are none.
	Writes int
	// DieAt is the number, from 1, of the write before which a process dies; 0: none does. To die after a write is to die
	// before the next one.
	DieAt int

	lock sync.Mutex
}

// Process is one that knows nothing of its predecessors.
type Process struct {
	client.WithWatch
	life *Life
	dead atomic.Bool
}

// Process begins one.
func (l *Life) Process(api client.WithWatch) *Process {
	p := &Process{life: l}
	p.WithWatch = Guarded(api, p.read, p.write)
	return p
}

// Dead tells whether it has died.
func (p *Process) Dead() bool { return p.dead.Load() }

func (p *Process) read(call func() error) error {
	if p.Dead() {
		return ErrDied
	}
	return call()
}

func (p *Process) write(call func() error) error {
	if p.dies() {
		return ErrDied
	}
	return call()
}

// dies counts a write, and tells whether it is not made.
func (p *Process) dies() bool {
	p.life.lock.Lock()
	defer p.life.lock.Unlock()
	if p.Dead() {
		return true
	}
	p.life.Writes++
	if p.life.Writes == p.life.DieAt {
		p.dead.Store(true)
	}
	return p.Dead()
}
