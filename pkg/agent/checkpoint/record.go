package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/keptfile"
)

// Role of this node in a NodeCheckpoint.
type Role string

// Roles.
const (
	Source Role = "source"
	Target Role = "target"
)

// record is what this node holds of a NodeCheckpoint. It is on disk before what it tells of is done, but for how a source that is to stand still did not:
// that it stands still again waits for no disk.
type record struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	Role Role      `json:"role"`
	Pod  Pod       `json:"pod"`
	// Containers are the names of those whose state is wanted, on the source.
	Containers []string `json:"containers,omitempty"`
	// Began is when the first container was about to be paused.
	Began time.Time `json:"began"`
	// Paused are the containers' IDs, by name.
	Paused map[string]string `json:"paused,omitempty"`
	// Resumed: they run on, as it came to nothing.
	Resumed bool `json:"resumed,omitempty"`
	// Archives that are complete; on the target, images of the runtime.
	Archives []archive `json:"archives,omitempty"`
	// Restoring: a pod may have been made of the state. Gone is when the NodeCheckpoint was first missed.
	Restoring bool      `json:"restoring,omitempty"`
	Gone      time.Time `json:"gone,omitzero"`
	// Disturbance is how the source's containers did not stay paused, and Disturbed that in words.
	Disturbance v1alpha1.CheckpointDisturbance `json:"disturbance,omitempty"`
	Disturbed   string                         `json:"disturbed,omitempty"`
	// Failure is why it came to nothing; empty while it may still succeed.
	Failure string `json:"failure,omitempty"`

	// unsaved: it says what the one on disk does not.
	unsaved bool
}

// archive of a container.
type archive struct {
	Container string `json:"container"`
	// Path of the file, on the source.
	Path   string `json:"path,omitempty"`
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"`
	// Image that the runtime has it as, and the base images that it was made on, on the target.
	Image string   `json:"image,omitempty"`
	Bases []string `json:"bases,omitempty"`
	// Imported: the runtime has it.
	Imported bool `json:"imported,omitempty"`
	// Restored is the container that the runtime made of it.
	Restored string `json:"restored,omitempty"`
}

func (r *record) archive(container string) *archive {
	for i := range r.Archives {
		if r.Archives[i].Container == container {
			return &r.Archives[i]
		}
	}
	return nil
}

// stops tells whether the pod stands still for it.
func (r *record) stops() bool { return r.Role == Source && len(r.Paused) > 0 && !r.Resumed }

// records are those of this node, each a file of its directory.
type records struct{ dir string }

// validUID keeps a name from leading out of the directory.
func validUID(uid types.UID) bool {
	return uid != "" && len(uid) <= 64 && !strings.ContainsAny(string(uid), "/.\\\x00")
}

func (r records) path(uid types.UID, role Role) string {
	return filepath.Join(r.dir, fileOf(uid, role))
}

func fileOf(uid types.UID, role Role) string { return string(uid) + "." + string(role) + ".json" }

// load returns what is held; nil when nothing is.
func (r records) load(uid types.UID, role Role) (*record, error) {
	if !validUID(uid) {
		return nil, fmt.Errorf("reading a record: %q is no UID", uid)
	}
	return readRecord(r.path(uid, role))
}

// errUnreadable means that a record is there and says nothing.
var errUnreadable = errors.New("reading a record")

// maxRecord bounds a record, in bytes: one takes some hundreds for each container.
const maxRecord = 1 << 20

func readRecord(path string) (*record, error) {
	content, err := keptfile.Read(path, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, keptfile.ErrTooLong) {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a record: %w", err)
	}
	out := &record{}
	if err := json.Unmarshal(content, out); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUnreadable, filepath.Base(path), err)
	}
	// What is done for a record is done by its UID and role: those of another, or of none, would have other files written and removed.
	if name := fileOf(out.UID, out.Role); filepath.Base(path) != name || !validUID(out.UID) {
		return nil, fmt.Errorf("reading record %s: it is that of %q", filepath.Base(path), name)
	}
	return out, nil
}

// save puts a record on disk, whole or not at all.
func (r records) save(one *record) error {
	content, err := json.Marshal(one)
	if err != nil {
		return fmt.Errorf("encoding a record: %w", err)
	}
	path := r.path(one.UID, one.Role)
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = errors.Join(os.Rename(path+".new", path), r.sync())
	}
	if err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	one.unsaved = false
	return nil
}

// sync has the names of records survive a loss of power, too: an image that the runtime has would be on no record otherwise.
func (r records) sync() error {
	dir, err := os.Open(r.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (r records) remove(one *record) error {
	if err := os.Remove(r.path(one.UID, one.Role)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a record: %w", err)
	}
	return nil
}

// all records of the node. One that cannot be read is named in the error, and the others are there.
func (r records) all() ([]*record, error) {
	files, err := filepath.Glob(filepath.Join(r.dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing records: %w", err)
	}
	var list []*record
	var errs []error
	for _, file := range files {
		one, err := readRecord(file)
		if err != nil {
			errs = append(errs, err)
		} else if one != nil {
			list = append(list, one)
		}
	}
	return list, errors.Join(errs...)
}

// fetched is where the target puts the archives of a NodeCheckpoint while it fetches them.
func (r records) fetched(uid types.UID) string { return filepath.Join(r.dir, string(uid)) }
