package standalone

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// load reads the note of a run that did not come to its end. There is none after one that did.
func load(path string) (n note, found bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return n, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err != nil {
		return n, false, fmt.Errorf("reading what an earlier run left to undo from %s: %w", path, err)
	}
	return n, true, nil
}

func forget(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("noting that all is undone: %w", err)
	}
	return nil
}
