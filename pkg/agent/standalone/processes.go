package standalone

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/process"
)

// Group is where the groups of servers are made that have none of their own.
const Group = "/mainspring"

// grace is how long a command may take to end after SIGTERM.
const grace = 2 * time.Second

// processes are those of the file: commands that we start, and processes that we move for a while.
type processes struct {
	local    *actuator.Local
	launcher []string
	logs     string
	// real: commands start as SCHED_FIFO.
	real bool

	made    []string // groups, in the order in which they were made
	running []*process.Process
	moved   []moved
}

type moved struct {
	pid    int
	before map[string]string
}

// makeGroups makes the groups of a table that are not there already.
func (p *processes) makeGroups(f File, t table.Table) error {
	owned := map[string]bool{}
	for _, s := range f.Servers {
		owned[s.Name] = s.Cgroup == ""
	}
	for _, s := range t.Servers {
		if !owned[s.ID] {
			continue
		}
		if len(p.made) == 0 {
			p.made = append(p.made, path.Dir(s.Cgroup))
		}
		p.made = append(p.made, s.Cgroup)
		if err := p.local.Make(s.Cgroup); err != nil {
			return err
		}
	}
	return nil
}

// start brings the processes into their groups. Commands begin to run last, all at once.
func (p *processes) start(f File, t table.Table) error {
	groups := map[string]string{}
	for _, s := range t.Servers {
		groups[s.ID] = s.Cgroup
	}
	ranks := Priorities(f)
	var gates []*os.File
	defer func() {
		for _, gate := range gates {
			_ = gate.Close() // a command whose gate closes without a word gives up
		}
	}()
	for _, s := range f.Servers {
		switch {
		case s.PID != 0:
			before, err := p.local.Join(groups[s.Name], s.PID)
			p.moved = append(p.moved, moved{s.PID, before})
			if err != nil {
				return fmt.Errorf("server %q: %w", s.Name, err)
			}
		case len(s.Command) > 0:
			gate, err := p.launch(s, groups[s.Name], ranks[s.Name])
			if err != nil {
				return fmt.Errorf("server %q: %w", s.Name, err)
			}
			gates = append(gates, gate)
		}
	}
	for _, gate := range gates {
		if _, err := gate.Write([]byte{1}); err != nil {
			return fmt.Errorf("starting commands: %w", err)
		}
	}
	return nil
}

// launch starts a command up to the gate that is returned, in its group.
func (p *processes) launch(s Server, group string, priority int) (*os.File, error) {
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	defer func() { _ = reading.Close() }()
	dir, err := os.Getwd()
	if err != nil {
		return nil, errors.Join(err, writing.Close())
	}
	if !p.real || s.Policy == PolicyOwn {
		priority = 0
	}
	args := append([]string{}, p.launcher[1:]...)
	args = append(append(args, "--priority="+strconv.Itoa(priority), "--"), s.Command...)
	child, err := process.Start(process.Command{
		Name: s.Name, Path: p.launcher[0], Args: args, Log: filepath.Join(p.logs, s.Name+".log"), Dir: dir, Files: []*os.File{reading},
	})
	if err != nil {
		return nil, errors.Join(err, writing.Close())
	}
	p.running = append(p.running, child)
	if _, err := p.local.Join(group, child.PID()); err != nil {
		return nil, errors.Join(err, writing.Close())
	}
	return writing, nil
}

// ended says that there were commands, and all have ended.
func (p *processes) ended() bool {
	for _, child := range p.running {
		if child.Running() {
			return false
		}
	}
	return len(p.running) > 0
}

// failures are the commands that ended with an error of their own.
func (p *processes) failures() error {
	var faults []error
	for _, child := range p.running {
		if !child.Running() && child.Err() != nil {
			faults = append(faults, child.Died())
		}
	}
	return errors.Join(faults...)
}

// stop ends the commands, and moves the other processes back to where they were.
func (p *processes) stop() error {
	stopped := make(chan error, len(p.running))
	for _, child := range p.running {
		go func() {
			if child.Running() {
				stopped <- child.Stop(grace)
				return
			}
			stopped <- nil
		}()
	}
	var faults []error
	for range p.running {
		faults = append(faults, <-stopped)
	}
	for _, m := range p.moved {
		faults = append(faults, p.local.Back(m.pid, m.before))
	}
	return errors.Join(faults...)
}

// removeGroups removes what makeGroups made.
func (p *processes) removeGroups() error {
	var faults []error
	for i := len(p.made) - 1; i >= 0; i-- {
		faults = append(faults, p.local.Remove(p.made[i]))
	}
	return errors.Join(faults...)
}
