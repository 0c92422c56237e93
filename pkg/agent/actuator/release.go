package actuator

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// release puts back everything of a group that the journal has, verifies it and forgets it, whichever backend changed it: also when
// the group has another name by now, for nobody else knows what was changed there. What belongs to one that was removed is only forgotten.
func (m *machine) release(group string) error { return m.releaseThese(group, m.journal.of(group)) }

func (m *machine) releaseThese(group string, pending []record) error {
	unruly := m.giveBack(group, pending)
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
			if err := m.putBack(r); err != nil {
				refused, faults = append(refused, r), append(faults, err)
				continue
			}
			done, progress = append(done, r), true
		}
		pending = refused
	}
	return errors.Join(append(faults, unruly, m.journal.drop(done...))...)
}

// putBack one record, and read it back.
func (m *machine) putBack(r record) error {
	if r.Controller == roomRecord {
		return nil
	}
	if r.Thread != 0 {
		return m.putBackThread(r) // wherever it is by now
	}
	f, err := m.of(r)
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
