// Package host reads a machine: its cores, its control groups, its kernel. A Host is rooted, so that the
// same code reads the machine it runs on, one whose file systems are mounted below a directory, and a
// fake tree in a test. It alone knows paths under /proc, /sys and the cgroup hierarchies; it never writes.
package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrUnsupported is what a reader returns, wrapped, when the kernel has not what is asked for.
var ErrUnsupported = errors.New("not supported by this kernel")

// maxFile bounds what is read of one file, in bytes. The largest is mountinfo: a line for every layer of every
// container.
const maxFile = 16 << 20

// Host is a machine seen below a root. The zero value is the machine that the process runs on.
type Host struct{ root string }

// New is the machine whose file systems are below root: "/" for the one that the process runs on,
// "/host" where another's are mounted, a directory in tests.
func New(root string) Host {
	root = filepath.Clean("/" + root)
	if root == "/" {
		root = ""
	}
	return Host{root: root}
}

// Root is the directory below which the machine is seen.
func (h Host) Root() string { return h.Path() }

// Path is a path on the machine, from its root; ".." leads no higher than that.
func (h Host) Path(elem ...string) string {
	return filepath.Join("/", h.root, filepath.Join(append([]string{"/"}, elem...)...))
}

// Proc is a path below /proc.
func (h Host) Proc(elem ...string) string {
	return h.Path(append([]string{"proc"}, elem...)...)
}

// Sys is a path below /sys.
func (h Host) Sys(elem ...string) string {
	return h.Path(append([]string{"sys"}, elem...)...)
}

// Local says that the machine is the one that the process runs on.
func (h Host) Local() bool { return h.root == "" }

// Read is the text of a file of the machine, without the white space around it.
func (h Host) Read(path string) (string, error) { return readString(h.Path(path)) }

// Glob are the paths on the machine that match a pattern of path/filepath, in order.
func (h Host) Glob(pattern string) []string {
	found, err := filepath.Glob(h.Path(pattern))
	if err != nil {
		return nil // the pattern is wrong, so nothing matches it
	}
	for i, path := range found {
		found[i] = h.Rel(path)
	}
	return found
}

// Dirs are the names of the directories in a directory of the machine, in order; none when it is not there.
func (h Host) Dirs(dir string) []string {
	entries, err := os.ReadDir(h.Path(dir))
	if err != nil {
		return nil
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

// Rel is a path, such as one of a hierarchy's directory, as the machine itself would call it.
func (h Host) Rel(path string) string {
	if rest, below := strings.CutPrefix(path, h.root); below && strings.HasPrefix(rest, "/") {
		return rest
	}
	return path
}

// readString is a file's text without the white space around it.
func readString(path string) (string, error) {
	data, err := readFile(path)
	return strings.TrimSpace(data), err
}

// readInt is the number that a file holds.
func readInt(path string) (int64, error) {
	text, err := readString(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %q is no number", path, text)
	}
	return n, nil
}

// readFile is a file's text; a file beyond maxFile is an error. Files of /proc and /sys tell no size.
func readFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxFile {
		return "", fmt.Errorf("reading %s: more than %d bytes", path, maxFile)
	}
	return string(data), nil
}
