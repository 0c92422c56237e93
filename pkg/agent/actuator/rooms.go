package actuator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"time"
)

// roomRecord is the controller of journal records that tell of no file but of room for a group that is to
// come: what its runtime then writes into the new group it writes at our request, so that it is not
// what the group was like before.
const roomRecord = "room"

// roomFor is how long a group may be there without being opened, until it is none that room was made for.
const roomFor = 30 * time.Second

// expect notes a server whose group is to come.
func (m *machine) expect(s Server) error {
	if _, known := m.rooms[s.Cgroup]; known {
		m.rooms[s.Cgroup] = s
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("noting room for %s: %w", s.Cgroup, err)
	}
	if err := m.journal.keep(record{Controller: roomRecord, Group: s.Cgroup, File: "server", Before: string(text)}); err != nil {
		return err
	}
	m.rooms[s.Cgroup] = s
	return nil
}

// expected reads the rooms of a former process from the journal.
func (m *machine) expected() {
	for _, r := range m.journal.records {
		var s Server
		if r.Controller == roomRecord && json.Unmarshal([]byte(r.Before), &s) == nil && s.Cgroup == r.Group && s.validate() == nil {
			m.rooms[r.Group] = s
		}
	}
}

// forgetRooms lets go of room for groups that never come, because the group above them is gone, and for groups that came
// and are not opened. It says whether there were any.
func (m *machine) forgetRooms() (forgot bool, err error) {
	for group := range maps.Clone(m.rooms) {
		if !m.hopeless(group) {
			continue
		}
		forgot = true
		delete(m.rooms, group)
		delete(m.came, group)
		if !m.there(group) {
			err = errors.Join(err, m.journal.drop(m.journal.of(group)...))
		}
	}
	return forgot, err
}

func (m *machine) hopeless(group string) bool {
	if m.there(group) {
		if m.came[group] == 0 {
			m.came[group] = m.now()
		}
		return m.now()-m.came[group] > roomFor.Nanoseconds()
	}
	delete(m.came, group)
	return !m.there(path.Dir(group))
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

// pristine is what a file of a group would hold had its runtime not written it at our request.
func (m *machine) pristine(t target, name, held string) string {
	if _, roomed := m.journal.before(t.group, "server"); !roomed {
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

// journaledBelow says that the journal has something of a group within a level.
func (m *machine) journaledBelow(level string) bool {
	for _, r := range m.journal.records {
		if below(r.Group, level) {
			return true
		}
	}
	return false
}

// sparedFor is how long a group whose Open failed is left as it is: its server is in the table and tried
// again, and what is in force until then may be less than was asked for, but is not nothing.
const sparedFor = time.Minute

// opened notes how an Open ended.
func (m *machine) opened(group string, err error) {
	delete(m.failed, group)
	if err != nil && !gone(err) {
		m.failed[group] = m.now()
	}
}

// spared says that Open of a group, or of one below it, failed a short time ago.
func (m *machine) spared(group string) bool {
	for path, at := range m.failed {
		if m.now()-at > sparedFor.Nanoseconds() {
			delete(m.failed, path)
		} else if path == group || below(path, group) {
			return true
		}
	}
	return false
}
