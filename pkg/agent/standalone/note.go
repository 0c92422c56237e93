package standalone

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/mainspring-rt/mainspring/pkg/agent/actuator"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/keptfile"
)

// note says on disk what a run has to undo, from before it does anything until all is undone. The run after one
// that died finds it.
type note struct {
	// Identity of the hierarchies that the groups are in.
	Identity string `json:"identity"`
	Groups   []made `json:"groups,omitempty"`
}

// made is a group that a run made.
type made struct {
	Group string `json:"group"`
	// IDs tell it from one of the same name that another run made. Without them the run did not come to make it, or died when
	// it just had: no process was in it then.
	IDs actuator.IDs `json:"ids,omitempty"`
	// Before is where its processes were, by hierarchy. Without it they are a command and its children, which end with
	// the run.
	Before map[string]string `json:"before,omitempty"`
	// Shared: it is the group above those of the servers, which other runs may use, too.
	Shared bool `json:"shared,omitempty"`
}

// save replaces the note at a path. It need not outlive the machine, as groups do not either.
func (n note) save(path string) error {
	data, err := json.Marshal(n)
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("noting what is to be undone: %w", err)
	}
	return nil
}

// maxNote bounds a note that is read, in bytes: as many servers as a table has, with 1,000 bytes for each.
const maxNote = table.MaxServers * 1000

// load reads the note of a run that did not come to its end; nil: it did.
func load(file string) (*note, error) {
	data, err := keptfile.Read(file, maxNote)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, keptfile.ErrTooLong) {
		return nil, fmt.Errorf("reading what an earlier run left to undo: %w", err)
	}
	var n note
	if err == nil {
		n, err = parse(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, which lists what an earlier run left to undo, is broken: %w; end what still runs in the groups below %s, "+
			"remove those of that run (rmdir, in each hierarchy), and then this file", file, err, Group)
	}
	return &n, nil
}

// parse reads a note. It takes none that would have us touch any group but those that a run makes.
func parse(data []byte) (n note, err error) {
	if err := json.Unmarshal(data, &n); err != nil {
		return n, err
	}
	if n.Identity != actuator.IdentityCPU && n.Identity != actuator.IdentityCpuset {
		return n, fmt.Errorf("identity %q; want %s or %s", n.Identity, actuator.IdentityCPU, actuator.IdentityCpuset)
	}
	for i, m := range n.Groups {
		of, name := path.Split(m.Group)
		if m.Shared && m.Group != Group || !m.Shared && (of != Group+"/" || !names.MatchString(name)) {
			return n, fmt.Errorf("groups[%d].group %q; want one in %s", i, m.Group, Group)
		}
	}
	return n, nil
}

func forget(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("noting that all is undone: %w", err)
	}
	return nil
}
