package actuator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"
)

// roomRecord is the controller of journal records that tell of no file but of room for a group that is to
// come: what its runtime then writes into the new group it writes at our request, so that it is not
// what the group was like before.
const roomRecord = "room"

// roomFile is what such a record has in place of a file.
const roomFile = "server"

// A group that came is opened within openedWithin, or it is none of the table. One that did not come comesWithin the room's making never
// comes: a runtime that is asked to create a container, and to start it, gives up after two minutes each (kubelet's default).
const (
	openedWithin = 30 * time.Second
	comesWithin  = 4 * time.Minute
)

// room is a server whose group is to come, as it is in the journal.
type room struct {
	Server
	// MadeNs is when the room was made, on the clock of ProbeOptions.
	MadeNs int64
	// Files are those of a budget that the runtime is asked to write when it makes the group; nil: whichever there are, as in notes of
	// versions before this field. The cpuset it writes in any case.
	Files []string
	// void: the group may come as was asked for, but nothing is kept for it above.
	void bool
}

// expect notes a server whose group is to come, in place of a former attempt at the same server.
func (m *machine) expect(s Server, files ...string) error {
	r := room{Server: s, MadeNs: m.now(), Files: append([]string{}, files...)}
	if former, known := m.rooms[s.Cgroup]; known {
		r.MadeNs = former.MadeNs // as it is in the journal
		m.rooms[s.Cgroup] = r
		return m.journal.dropThere(voided(s.Cgroup))
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("noting room for %s: %w", s.Cgroup, err)
	}
	if err := m.supersede(s); err != nil {
		return err
	}
	if err := m.journal.keep(record{Controller: roomRecord, Group: s.Cgroup, File: roomFile, Before: string(text)}); err != nil {
		return err
	}
	m.rooms[s.Cgroup] = r
	return nil
}

// supersede lets go of the room of former attempts at a server: a container that could not be started is made anew
// under another name.
func (m *machine) supersede(s Server) error {
	var faults []error
	for group, r := range maps.Clone(m.rooms) {
		if s.ID != "" && r.ID == s.ID && group != s.Cgroup {
			faults = append(faults, m.forget(group))
		}
	}
	return errors.Join(faults...)
}

// expected reads the rooms of a former process from the journal.
func (m *machine) expected() {
	for _, record := range m.journal.records {
		var r room
		if record.Controller == roomRecord && json.Unmarshal([]byte(record.Before), &r) == nil && r.Cgroup == record.Group && r.validate() == nil {
			r.MadeNs = max(0, min(r.MadeNs, m.now())) // neither a clock that went back nor what wraps around may keep it for ever
			r.void = m.journal.has(voided(r.Cgroup))
			m.rooms[record.Group] = r
		}
	}
}

// forgetRooms lets go of room for groups that do not come, or came and went, or came and are not opened, and says which those were.
func (m *machine) forgetRooms() (forgot []room, err error) {
	for group, r := range maps.Clone(m.rooms) {
		if m.hopeless(r) {
			forgot = append(forgot, r)
			err = errors.Join(err, m.forget(group))
		}
	}
	return forgot, err
}

// forget room for a group. What the journal has of one that is there is put back by settling, and what its runtime wrote at our request.
func (m *machine) forget(group string) error {
	delete(m.rooms, group)
	delete(m.came, group)
	if m.there(group) {
		return nil
	}
	return m.journal.drop(m.journal.of(group)...)
}

func (m *machine) hopeless(r room) bool {
	came, seen := m.came[r.Cgroup]
	switch {
	case m.wasOpened(r.Cgroup):
		return true
	case m.there(r.Cgroup) && !seen:
		m.came[r.Cgroup] = m.now()
		return false
	case m.there(r.Cgroup):
		return m.now()-came > openedWithin.Nanoseconds()
	case seen:
		return true
	}
	return m.now()-r.MadeNs > comesWithin.Nanoseconds() || !m.there(path.Dir(r.Cgroup))
}

// wasOpened says that a former process opened a group that room was made for, so that it is not to come any more: its journal tells of more than the
// room. This process has forgotten the room by then.
func (m *machine) wasOpened(group string) bool {
	return slices.ContainsFunc(m.journal.of(group), func(r record) bool { return r.Controller != roomRecord })
}

// there says that a group is in one of the hierarchies that containers are placed in.
func (m *machine) there(group string) bool {
	_, err := m.cg.Dir("cpuset", group)
	return err == nil
}

// arrived: the group that room was made for is opened. The journal keeps the note for pristine.
func (m *machine) arrived(group string) {
	delete(m.rooms, group)
	delete(m.came, group)
}

// journaledBelow says that the journal has something of a group within a level.
func (m *machine) journaledBelow(level string) bool {
	for _, r := range m.journal.records {
		if below(r.Group, level) {
			return true
		}
	}
	return false
}

// opened notes how an Open ended, and since when it fails. It says whether that begins to fail.
func (m *machine) opened(group string, err error) (fails bool) {
	if err == nil || gone(err) {
		delete(m.failed, group)
		return false
	}
	_, before := m.failed[group]
	if !before {
		m.failed[group] = m.now()
	}
	return !before
}

// named forgets who failed and is not of the table any more.
func (m *machine) named(groups []string) {
	maps.DeleteFunc(m.failed, func(group string, _ int64) bool { return !slices.Contains(groups, group) })
}
