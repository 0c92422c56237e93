package actuator

import (
	"encoding/json"
	"errors"
	"maps"
	"path"
	"slices"
)

// requestable are the files of a budget that a runtime may be asked to write into the group that it makes, in the order in which they are written.
var requestable = []string{rtPeriod, rtRuntime, rtMax}

// requested are those that it was asked to write.
func (r room) requested() []string {
	return slices.DeleteFunc(slices.Clone(requestable), func(name string) bool { return r.Files != nil && !slices.Contains(r.Files, name) })
}

// keepRequested journals what a group would hold had its runtime not written it at our request. The note of the room
// names no file, so without the records no process would put anything back in a group that was never opened. A group
// that did not come holds nothing.
func (m *machine) keepRequested(group string) error {
	note, roomed := m.journal.before(group, roomFile)
	var r room
	if readable := json.Unmarshal([]byte(note), &r) == nil; !roomed || !readable {
		return nil
	}
	faults := []error{butGone(m.inCpuset(group, func(t target) error { return m.keepThere(t, cpusetCPUs) }))}
	if names := r.requested(); len(names) > 0 && m.cg.Has("cpu") {
		faults = append(faults, butGone(m.in("cpu", group, func(f files) error { return m.keepThere(target{"cpu", group, f}, names...) })))
	}
	return errors.Join(faults...)
}

// voided is the record of a void room.
func voided(group string) record { return record{Controller: roomRecord, Group: group, File: "void"} }

// void the room for a group. Its runtime was told what to write already, or does so without a budget, so the note stays until the group came and was
// put back, or does not come.
func (m *machine) void(group string) error {
	r, known := m.rooms[group]
	if !known {
		return nil
	}
	r.void = true
	m.rooms[group] = r
	return m.journal.keep(voided(group))
}

// voidRooms lets go of all, so that what is there is put back.
func (m *machine) voidRooms() error {
	var faults []error
	for group := range maps.Clone(m.rooms) {
		if m.there(group) {
			faults = append(faults, m.forget(group))
		} else {
			faults = append(faults, m.void(group))
		}
	}
	return errors.Join(faults...)
}

// keepThere is keep of those files that are there.
func (m *machine) keepThere(t target, names ...string) error {
	var faults []error
	for _, name := range names {
		faults = append(faults, butGone(m.keep(t, name)))
	}
	return errors.Join(faults...)
}

func butGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// pristine is what a file of a group would hold had its runtime not written it at our request.
func (m *machine) pristine(t target, name, held string) string {
	if _, roomed := m.journal.before(t.group, roomFile); !roomed {
		return held
	}
	switch name {
	case rtRuntime:
		return "0"
	case rtPeriod:
		return "1000000"
	case rtMax:
		return "max 100000"
	case cpusetCPUs:
		return m.inherited(t.group)
	}
	return held
}

// inherited is the cpuset of a new group: on v2 none of its own, on v1 what the runtime copies from above.
func (m *machine) inherited(group string) string {
	if m.unifiedCpuset() {
		return ""
	}
	parent := path.Dir(group)
	if before, changed := m.journal.before(parent, cpusetCPUs); changed {
		return before
	}
	var held string
	_ = m.inCpuset(parent, func(t target) (err error) {
		held, err = t.read(cpusetCPUs)
		return err
	})
	return held
}
