package fastpath

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mainspring-rt/mainspring/pkg/agent/fastpath/client"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/keptfile"
)

// store keeps the last table on disk: it is there before it is acted upon, whole or not at all.
type store struct{ path string }

// maxKept bounds the file, in bytes: a table comes in a body, and is not written in the same way.
const maxKept = 2 * client.MaxBody

// kept is what is on disk: a table, or that everything is to be restored.
type kept struct {
	table.Table
	Restoring bool `json:"restoring,omitempty"`
}

func (s store) save(k kept) error {
	data, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("encoding the table: %w", err)
	}
	if len(data) > maxKept {
		return fmt.Errorf("keeping the table: it has %d bytes; want at most %d, which are read again", len(data), maxKept)
	}
	fresh := s.path + ".new" // the same each time: a process that is killed here leaves one, and the next writes over it
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("keeping the table: %w", err)
	}
	defer func() { _ = os.Remove(fresh) }() // gone already when all went well
	_, err = file.Write(data)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(fresh, s.path)
	}
	if err != nil {
		return fmt.Errorf("keeping the table: %w", err)
	}
	return nil
}

// load returns the table that was kept; false: there is none. One that cannot be read or makes no sense is an error.
func (s store) load() (kept, bool, error) {
	data, err := keptfile.Read(s.path, maxKept)
	if errors.Is(err, fs.ErrNotExist) {
		return kept{}, false, nil
	}
	var k kept
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err == nil {
		err = k.Validate()
	}
	if err != nil {
		return kept{}, false, fmt.Errorf("the table that was kept in %s cannot be used: %w", s.path, err)
	}
	return k, true, nil
}

// putAside moves a table that cannot be used out of the way of the next, so that an administrator can look at it.
func (s store) putAside() error {
	if err := os.Rename(s.path, s.path+".broken"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("putting it aside: %w", err)
	}
	return nil
}

// Governed says that a table with servers is kept in a state directory.
func Governed(stateDir string) bool {
	k, ok, err := storeIn(stateDir).load()
	return err == nil && ok && len(k.Servers) > 0
}

func storeIn(stateDir string) store { return store{path: filepath.Join(stateDir, "table.json")} }

func (s store) clear() error {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting the table: %w", err)
	}
	return nil
}
