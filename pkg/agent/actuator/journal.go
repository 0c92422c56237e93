package actuator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/keptfile"
)

// journalFile is the name of the journal in the state directory.
const journalFile = "actuator.journal"

// maxJournal bounds a journal, in bytes: 2048 servers with 20 records of 250 bytes. No more is read, and so no more is written: a server
// whose group would take it beyond that is not opened, but the process after this one starts.
const maxJournal = 16 << 20

// record is what was there before the first change of a file, or of a thread's scheduling attributes.
type record struct {
	// Controller and Group name the directory, Inode the very one.
	Controller string `json:"controller"`
	Group      string `json:"group"`
	Inode      uint64 `json:"inode"`
	// File that was changed and what it held before.
	File   string `json:"file,omitempty"`
	Before string `json:"before,omitempty"`
	// Thread whose attributes were changed; Started tells it from another of the same number.
	Thread  int       `json:"thread,omitempty"`
	Started uint64    `json:"started,omitempty"`
	Attr    *schedule `json:"attr,omitempty"`
	// By is the backend that changed the thread.
	By string `json:"by,omitempty"`
}

// schedule is how a thread was scheduled.
type schedule struct {
	Policy   uint32 `json:"policy"`
	Flags    uint64 `json:"flags,omitempty"`
	Nice     int32  `json:"nice,omitempty"`
	Priority uint32 `json:"priority,omitempty"`
	Runtime  uint64 `json:"runtime,omitempty"`
	Deadline uint64 `json:"deadline,omitempty"`
	Period   uint64 `json:"period,omitempty"`
}

// forbidsRealtime says that putting the record back leaves a group without real-time budget: the kernel refuses that while any of its
// threads is real-time.
func (r record) forbidsRealtime() bool {
	switch r.File {
	case rtRuntime:
		return r.Before == "0"
	case rtMax:
		return strings.HasPrefix(r.Before, "0 ")
	case rtMulti:
		return strings.Trim(r.Before, "0 ") == ""
	}
	return false
}

func (r record) key() string {
	return fmt.Sprint(r.Controller, "\x00", r.Group, "\x00", r.Inode, "\x00", r.File, "\x00", r.Thread, "\x00", r.Started)
}

// journal is the list of records. The backend writes them to a file before it changes what they tell of, so that they
// are there after the process has ended. It appends records; to remove some, it writes the whole anew beside the old
// file and renames. It does not wait for the disk: the first line names the boot, as a reboot removes the cgroups and
// gives out their inodes again.
type journal struct {
	path    string
	boot    string
	file    *os.File
	size    int  // of the file, in bytes
	whole   bool // the file is open, and is what the records are
	records []record
	held    map[string]bool
}

type journalHead struct {
	Boot string `json:"boot"`
}

// openJournal reads the journal of a state directory, or begins one. A last line that is not whole was
// being written when the process died, or there was no room for it: its change was not made. What is there is gone on with,
// for which a disk that is full has room.
func openJournal(dir, boot string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	j := &journal{path: filepath.Join(dir, journalFile), boot: boot}
	data, err := keptfile.Read(j.path, maxJournal)
	if err == nil {
		j.records, err = parseJournal(data, boot)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the journal %s: %w; if the machine was set right by hand, remove the file", j.path, err)
	}
	text := data[:bytes.LastIndexByte(data, '\n')+1]
	if err == nil && ofBoot(firstLine(text), boot) {
		return j, j.goOn(len(text))
	}
	return j, j.rewrite()
}

func firstLine(text []byte) []byte {
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	return line
}

// parseJournal reads the records of a boot from a journal's text. That of another boot is void, and may be broken: a machine
// that loses power keeps neither control groups nor what was written last.
func parseJournal(data []byte, boot string) ([]record, error) {
	end := bytes.LastIndexByte(data, '\n')
	if end < 0 {
		return nil, nil
	}
	lines := bytes.Split(data[:end], []byte{'\n'})
	if !ofBoot(lines[0], boot) {
		return nil, nil
	}
	records := make([]record, 0, len(lines))
	for i, line := range lines[1:] {
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		records = append(records, r)
	}
	return records, nil
}

// ofBoot says that a journal's head is whole, and of that boot.
func ofBoot(line []byte, boot string) bool {
	var head journalHead
	return json.Unmarshal(line, &head) == nil && head.Boot == boot
}

// validate refuses what would have Restore write anywhere but to a file of a control group.
func (r record) validate() error {
	switch {
	case !strings.HasPrefix(r.Group, "/") || filepath.Clean(r.Group) != r.Group:
		return fmt.Errorf("group %q; want a clean absolute path", r.Group)
	case r.Controller == "":
		return errors.New("controller is empty")
	case r.Thread < 0 || r.Thread > math.MaxInt32: // the kernel would take the lower half for the number of another
		return fmt.Errorf("thread %d; want at most %d", r.Thread, math.MaxInt32)
	case (r.Thread == 0) == (r.File == ""):
		return fmt.Errorf("file %q and thread %d; want one of the two", r.File, r.Thread)
	case r.Thread != 0 && r.Attr == nil:
		return fmt.Errorf("thread %d has no attributes", r.Thread)
	case r.File != "" && filepath.Base(r.File) != r.File, r.File == ".", r.File == "..":
		return fmt.Errorf("file %q; want a name without directories", r.File)
	}
	return nil
}

// keep writes records that are not held yet. When it returns they stay after this process ends. They need not stay after
// a reboot, as the control groups do not either: keep does not wait for the disk.
func (j *journal) keep(records ...record) error {
	var lines bytes.Buffer
	var fresh []record
	for _, r := range records {
		if j.held[r.key()] {
			continue
		}
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("writing the journal: %w", err)
		}
		lines.Write(append(line, '\n'))
		fresh = append(fresh, r)
	}
	if len(fresh) == 0 {
		return nil
	}
	if j.size+lines.Len() > maxJournal {
		return fmt.Errorf("writing the journal: it would have %d bytes; want at most %d, which are read again", j.size+lines.Len(), maxJournal)
	}
	if err := j.mend(); err != nil {
		return err
	}
	if _, err := j.file.Write(lines.Bytes()); err != nil { // maybe a part of it is there, and what comes next must not come behind that
		cut := j.file.Truncate(int64(j.size))
		j.whole = cut == nil
		return fmt.Errorf("writing the journal: %w", errors.Join(err, cut))
	}
	j.size += lines.Len()
	for _, r := range fresh {
		j.records = append(j.records, r)
		j.held[r.key()] = true
	}
	return nil
}

// has says that there is a record of the same.
func (j *journal) has(r record) bool { return j.held[r.key()] }

// of are the records of a group, last first.
func (j *journal) of(group string) []record {
	var out []record
	for _, r := range slices.Backward(j.records) {
		if r.Group == group {
			out = append(out, r)
		}
	}
	return out
}

// before is what a file of a group held before it was first changed.
func (j *journal) before(group, file string) (string, bool) {
	for _, r := range j.records {
		if r.Group == group && r.File == file {
			return r.Before, true
		}
	}
	return "", false
}

// groups that have records, deepest first.
func (j *journal) groups() []string {
	seen := map[string]bool{}
	var out []string
	for _, r := range j.records {
		if !seen[r.Group] {
			seen[r.Group] = true
			out = append(out, r.Group)
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		if n := strings.Count(b, "/") - strings.Count(a, "/"); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	return out
}

// drop forgets records.
func (j *journal) drop(records ...record) error {
	if len(records) == 0 {
		return nil
	}
	out := map[string]bool{}
	for _, r := range records {
		out[r.key()] = true
	}
	j.records = slices.DeleteFunc(j.records, func(r record) bool { return out[r.key()] })
	j.whole = false
	return j.rewrite()
}

// dropThere forgets a record, if there is one.
func (j *journal) dropThere(r record) error {
	if !j.has(r) {
		return nil
	}
	return j.drop(r)
}

// mend writes what could not be written.
func (j *journal) mend() error {
	if j.whole {
		return nil
	}
	return j.rewrite()
}

// rewrite puts the journal on disk as it is now, and opens it for keep.
func (j *journal) rewrite() error {
	head, err := json.Marshal(journalHead{Boot: j.boot})
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	text := append(head, '\n')
	for _, r := range j.records {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("writing the journal: %w", err)
		}
		text = append(append(text, line...), '\n')
	}
	j.hold()
	if err := replace(j.path, text); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return j.goOn(len(text))
}

// goOn opens the file for keep, of which so many bytes are the records.
func (j *journal) goOn(size int) error {
	j.whole = false
	j.hold()
	file, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	if err := file.Truncate(int64(size)); err != nil {
		return fmt.Errorf("writing the journal: %w", errors.Join(err, file.Close()))
	}
	if j.file != nil {
		_ = j.file.Close()
	}
	j.file, j.size, j.whole = file, size, true
	return nil
}

// hold remembers of what there are records.
func (j *journal) hold() {
	j.held = map[string]bool{}
	for _, r := range j.records {
		j.held[r.key()] = true
	}
}

// replace a file by another with the same name, so that either is there whole when the process dies.
func replace(path string, data []byte) error {
	fresh := path + ".new"
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(fresh)) // a disk that is full needs the room
	}
	return os.Rename(fresh, path)
}
