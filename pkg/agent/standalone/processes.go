package standalone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/process"
)

// Group is where the groups of servers are made that have none of their own.
const Group = "/mainspring"

// grace is how long a command may take to end after SIGTERM.
const grace = 2 * time.Second

// clearEvery is how often a group is looked at until it is empty, clearTries how often at most.
const (
	clearEvery = 20 * time.Millisecond
	clearTries = 100
)

// processes are those of the file: commands that we start, and processes that we move for a while.
type processes struct {
	local    *actuator.Local
	clock    clock.Clock
	launcher []string
	logs     string
	// real: commands start as SCHED_FIFO.
	real bool
	// note is what is to be undone, kept on disk at path.
	note note
	path string

	// say is as in Options.
	say func(string)

	running []*process.Process
}

// makeGroups makes the groups of servers that have none of their own. None of them may be there: what an earlier run with our
// state directory left is undone by now, so it would be another's.
func (p *processes) makeGroups(f File, t table.Table) error {
	groups := map[string]string{}
	for _, s := range t.Servers {
		groups[s.ID] = s.Cgroup
	}
	for _, s := range f.Servers {
		if s.Cgroup != "" {
			continue
		}
		m := made{Group: groups[s.Name]}
		if s.PID != 0 {
			before, err := p.local.Where(s.PID)
			if err != nil {
				return fmt.Errorf("server %q: %w", s.Name, err)
			}
			m.Before = before
		}
		if len(p.note.Groups) == 0 {
			p.note.Groups = append(p.note.Groups, made{Group: path.Dir(m.Group), Shared: true})
		}
		p.note.Groups = append(p.note.Groups, m)
	}
	if err := p.note.save(p.path); err != nil {
		return err
	}
	made, err := p.createGroups()
	if err != nil {
		p.note.Groups = p.note.Groups[:made] // the others are not ours to undo
	}
	return errors.Join(err, p.note.save(p.path)) // what the groups are known by, too
}

// createGroups makes the groups of the note, and says how many it made.
func (p *processes) createGroups() (made int, err error) {
	for i := range p.note.Groups {
		m := &p.note.Groups[i]
		if m.Shared {
			err = p.local.Make(m.Group)
		} else {
			m.IDs, err = p.local.Create(m.Group)
		}
		if errors.Is(err, fs.ErrExist) {
			err = p.explain(m.Group, err)
		}
		if err != nil {
			return i, err
		}
	}
	return len(p.note.Groups), nil
}

// explain why a group is there that we did not make.
func (p *processes) explain(group string, exists error) error {
	pids, err := p.local.Processes(group)
	if len(pids) > 0 {
		return fmt.Errorf("%w: another run has a server of this name, with processes %v; use another name, or end that run", exists, pids)
	}
	return errors.Join(fmt.Errorf("%w: another run has a server of this name, or left it when it was killed; use another name, "+
		"start that run again with its --state-dir, which undoes what is left, or remove the group with rmdir", exists), err)
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
			if _, err := p.local.Join(groups[s.Name], s.PID); err != nil {
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

// stop ends the commands.
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
	return errors.Join(faults...)
}

// putBack ends what commands left behind, moves the other processes back to where they were, and has the fast path restore everything.
// Most backends do that when the groups are empty: one with real-time tasks cannot lose its budget. With fifo it is the threads that are
// changed, and the fast path finds those that were made since in their group alone: moved processes stay in it until that is done, if need
// be by the next run. A group with tasks cannot be removed.
func (p *processes) putBack(ctx context.Context, fast *client.Client, backend string) error {
	moved := func(m made) bool { return len(m.Before) > 0 }
	ended := p.clearGroups(func(m made) bool { return !moved(m) })
	if backend != actuator.FIFO || !slices.ContainsFunc(p.note.Groups, moved) {
		return errors.Join(ended, p.clearGroups(moved), fast.Restore(ctx), p.removeGroups())
	}
	if err := fast.Restore(ctx); err != nil {
		return errors.Join(ended, fmt.Errorf("giving threads back their policies: %w; the processes that were moved stay in their groups below %s until "+
			"the next start with this state directory", err, Group))
	}
	return errors.Join(ended, p.clearGroups(moved), p.removeGroups())
}

// clearGroups has all processes leave those of the groups that were made.
func (p *processes) clearGroups(which func(made) bool) error {
	var faults []error
	for _, m := range p.note.Groups {
		if !m.Shared && which(m) {
			faults = append(faults, p.clear(m))
		}
	}
	return errors.Join(faults...)
}

// clear has the processes of a group go back to where they were, or end. Those of a group that another run made are not
// ours.
func (p *processes) clear(m made) error {
	if own, err := p.local.Own(m.Group, m.IDs); err != nil || !own {
		return err
	}
	var last error
	for range clearTries {
		pids, err := p.local.Processes(m.Group)
		if err != nil || len(pids) == 0 {
			return err
		}
		last = fmt.Errorf("group %s: processes %v do not leave it", m.Group, pids)
		for _, pid := range pids {
			if err := p.release(pid, m.Before); err != nil {
				last = fmt.Errorf("group %s: %w", m.Group, err)
			}
		}
		<-p.clock.After(clearEvery)
	}
	return last
}

func (p *processes) release(pid int, before map[string]string) error {
	if len(before) > 0 {
		notes, err := p.local.Back(pid, before)
		for _, note := range notes {
			p.say(note)
		}
		return err
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending process %d: %w", pid, err)
	}
	return nil
}

// removeGroups removes what makeGroups made, and then the note.
func (p *processes) removeGroups() error {
	var faults []error
	for _, m := range slices.Backward(p.note.Groups) {
		faults = append(faults, p.remove(m))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return forget(p.path)
}

func (p *processes) remove(m made) error {
	if m.IDs != nil {
		return p.local.RemoveOwn(m.Group, m.IDs)
	}
	err := p.local.Remove(m.Group)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) {
		return nil // another run uses it
	}
	return err
}
