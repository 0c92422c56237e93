package actuator

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// release puts back everything of a group that the journal has, and what its runtime wrote into it at our request,
// verifies it and forgets it. It does so whichever backend made the change, and also when the group has another name by
// now, for no other process knows what was changed there. It only forgets what belongs to a group that was removed.
// Where threads of it may be making others with a policy of ours (making), the records of that stay for the next
// release.
func (m *machine) release(group string) error {
	if err := m.keepRequested(group); err != nil {
		return err // the note of it stays until that is on record
	}
	return m.releaseThese(group, m.journal.of(group))
}

func (m *machine) releaseThese(group string, pending []record) error {
	sought := places{machine: m, found: map[place]string{}}
	threads := slices.DeleteFunc(slices.Clone(pending), func(r record) bool { return r.Thread == 0 })
	stopped := m.stoppedGroups(threads, sought)
	unruly := m.giveBack(group, threads)
	if gone(unruly) {
		unruly = nil
	}
	var done []record
	var faults []error
	// Files may depend on each other: a runtime fits only after its period. So what is refused is
	// tried again as long as something else succeeded.
	for progress := true; progress && len(pending) > 0; {
		progress, faults = false, nil
		var refused []record
		for _, r := range pending {
			if err := m.putBack(r, sought); err != nil {
				refused, faults = append(refused, r), append(faults, err)
				continue
			}
			done, progress = append(done, r), true
		}
		pending = refused
	}
	making, inherited := m.takeBack(threads, sought, stopped)
	if making || inherited != nil { // the next release has to know these threads from those that they made
		done = slices.DeleteFunc(done, func(r record) bool { return r.By == FIFO })
	}
	return errors.Join(append(faults, unruly, inherited, m.journal.drop(done...))...)
}

// putBack one record, and read it back.
func (m *machine) putBack(r record, sought places) error {
	if r.Controller == roomRecord || r.Controller == givenRecord {
		return nil
	}
	if r.Thread != 0 {
		if m.wasPutBack(r) {
			return nil
		}
		return m.putBackThread(r) // wherever it is by now
	}
	f, err := sought.open(r)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.close() }()
	if r.forbidsRealtime() {
		if err := m.demoteAll(f); err != nil {
			return err
		}
	}
	err = m.putBackFile(target{r.Controller, r.Group, f}, r)
	if gone(err) {
		return nil
	}
	return err
}

func (m *machine) putBackFile(t target, r record) error {
	held, err := t.read(r.File)
	if err != nil || held == r.Before {
		return err
	}
	if r.File == rtMulti {
		return putBackMulti(t, r.Before)
	}
	if err := t.write(r.File, r.Before+"\n"); err != nil {
		if r.Before == "" && errors.Is(err, unix.ENOSPC) {
			return nil // tasks came since into a cpuset that was empty: they keep what they run on
		}
		return describe(r.Group, r.File, r.Before, err)
	}
	if held, err = t.read(r.File); err != nil {
		return err
	}
	if held != r.Before {
		return fmt.Errorf("putting %s of %s back to %q: it reads back as %q", r.File, r.Group, r.Before, held)
	}
	return nil
}
