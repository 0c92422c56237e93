package state

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// ProgressReserved is the entry of the progress of an action of kind Migrate that says what is reserved for it: a Migration. It
// is stored with the action, so it survives the process, and every replica knows of it.
const ProgressReserved = "reserved"

// kindMigrate is the kind of such an action.
const kindMigrate v1alpha1.ActionKind = "Migrate"

// Migration is the room that is kept for the containers of a pod on the node that it goes to.
type Migration struct {
	Node  string           `json:"node,omitempty"`
	Cores []MigrationShare `json:"cores,omitempty"`
}

// MigrationShare is the room for one container.
type MigrationShare struct {
	Core   int       `json:"core"`
	Server rt.Server `json:"server"`
}

// Encode is the entry's value.
func (m Migration) Encode() (string, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encoding what is reserved for a migration: %w", err)
	}
	return string(text), nil
}

// ParseMigration reads the entry's value.
func ParseMigration(text string) (Migration, error) {
	var m Migration
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return Migration{}, fmt.Errorf("reading entry %s of an action's progress: %w", ProgressReserved, err)
	}
	return m, nil
}

// Reservations are those of an action. They end with it, and not by themselves.
func (m Migration) Reservations(action string) []Reservation {
	var out []Reservation
	for i, share := range m.Cores {
		out = append(out, Reservation{Key: migrationKey(action, i), Node: m.Node, Core: share.Core, Server: share.Server})
	}
	return out
}

// ReleaseMigration gives back what is reserved for an action.
func (s *Store) ReleaseMigration(action string) {
	s.write(func(next *Snapshot, d *dirty) error { //nolint:errcheck // releasing cannot fail
		next.dropAction(action, d)
		return nil
	})
}

// ReservedFor tells whether cores of the node are reserved for an action of kind Migrate.
func (n *NodeView) ReservedFor(action string) bool {
	return slices.ContainsFunc(n.Reservations, func(r Reservation) bool { return r.Key == migrationKey(action, 0) })
}

func migrationKey(action string, i int) string { return fmt.Sprintf("action/%s/%d", action, i) }

// putAction keeps what an action on record has reserved. While it runs and has nothing on record, it may be about to: what
// was reserved in this process stays then.
func (s *Snapshot) putAction(o *v1alpha1.RTAction, d *dirty) error {
	if o.Spec.Kind != kindMigrate {
		return nil
	}
	text, reserved := o.Status.Progress[ProgressReserved]
	holds := o.Status.Phase == "Running" || o.Status.Phase == "RollingBack"
	if holds && !reserved {
		return nil
	}
	var m Migration
	if holds {
		var err error
		if m, err = ParseMigration(text); err != nil {
			return err
		}
	}
	s.dropAction(o.Name, d)
	list := m.Reservations(o.Name)
	for i := range list {
		s.reserve(&list[i], d)
	}
	return nil
}

func (s *Snapshot) dropAction(name string, d *dirty) {
	for i := 0; ; i++ {
		old, ok := s.reservations.get(pair{first: migrationKey(name, i)})
		if !ok {
			return
		}
		s.unreserve(old, d)
	}
}
