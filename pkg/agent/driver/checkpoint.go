package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/keptfile"
)

const (
	recordSuffix  = ".json"
	corruptSuffix = ".corrupt"
	tempPrefix    = ".mainspring-new-" // what a crash in writeWhole leaves
)

// maxFile bounds each of the files that are read, in bytes: a claim takes some hundreds, and is reserved for 256 pods at most.
const maxFile = 1 << 20

// checkpoint keeps a file for each prepared claim: one that cannot be read takes no other with it.
type checkpoint struct{ dir string }

func openCheckpoint(dir string) (checkpoint, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return checkpoint{}, fmt.Errorf("making the folder of prepared claims: %w", err)
	}
	return checkpoint{dir}, nil
}

func (c checkpoint) path(uid types.UID) string { return filepath.Join(c.dir, string(uid)+recordSuffix) }

// load returns what is there. Files that cannot be believed, be they damaged or of another version, are put
// aside, and told in the error beside the records that can; lost are their claims.
func (c checkpoint) load() (records map[types.UID]Record, lost []types.UID, err error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("listing prepared claims: %w", err)
	}
	records = map[types.UID]Record{}
	var faults []error
	for _, e := range entries {
		faults = append(faults, removeTemp(c.dir, e.Name()))
		if uid, aside := strings.CutSuffix(e.Name(), recordSuffix+corruptSuffix); aside {
			lost = append(lost, types.UID(uid)) // by an earlier agent
		}
		uid, isRecord := strings.CutSuffix(e.Name(), recordSuffix)
		if !isRecord || e.IsDir() {
			continue
		}
		r, err := c.read(types.UID(uid))
		if err != nil {
			path := filepath.Join(c.dir, e.Name())
			faults = append(faults, fmt.Errorf("reading prepared claim %s: %w", uid, err), os.Rename(path, path+corruptSuffix))
			lost = append(lost, types.UID(uid))
			continue
		}
		records[r.UID] = r
	}
	return records, lost, errors.Join(faults...)
}

func (c checkpoint) read(uid types.UID) (Record, error) {
	data, err := keptfile.Read(c.path(uid), maxFile)
	if err != nil {
		return Record{}, err
	}
	r, err := parseRecord(data)
	if err == nil && r.UID != uid {
		return Record{}, fmt.Errorf("it is of claim %q", r.UID)
	}
	return r, err
}

func parseRecord(data []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("decoding: %w", err)
	}
	return r, r.validate()
}

// save is done when the record is on disk, whole. One that was put aside is of no use then.
func (c checkpoint) save(r Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding prepared claim %s: %w", r.UID, err)
	}
	if err := writeWhole(c.path(r.UID), data, 0o600); err != nil {
		return err
	}
	return removeFile(c.path(r.UID) + corruptSuffix)
}

// remove is done when the record is gone.
func (c checkpoint) remove(uid types.UID) error {
	for _, path := range []string{c.path(uid), c.path(uid) + corruptSuffix} {
		if err := removeFile(path); err != nil {
			return err
		}
	}
	return syncDir(c.dir)
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing prepared claim: %w", err)
	}
	return nil
}

// writeWhole replaces a file so that a reader, and whoever comes after a crash, finds the old or the new
// content, never a part.
func writeWhole(path string, data []byte, mode os.FileMode) (err error) {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err = os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func removeTemp(dir, name string) error {
	if !strings.HasPrefix(name, tempPrefix) {
		return nil
	}
	return os.Remove(filepath.Join(dir, name))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
