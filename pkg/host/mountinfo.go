package host

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Mount is a line of mountinfo, see proc_pid_mountinfo(5).
type Mount struct {
	ID, Parent int
	// Root is the directory of the file system that is mounted at Point.
	Root, Point string
	// Type of the file system, and its SuperOptions.
	Type         string
	SuperOptions []string
}

// ParseMountInfo reads a mountinfo file. Lines that make no sense are an error, with their number.
func ParseMountInfo(text string) ([]Mount, error) {
	var mounts []Mount
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		m, err := parseMount(line)
		if err != nil {
			return nil, fmt.Errorf("mountinfo line %d: %w", i+1, err)
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

// parseMount reads "36 35 98:0 /root /point options optional... - type source super-options".
func parseMount(line string) (Mount, error) {
	before, after, found := strings.Cut(line, " - ")
	// One space is between two fields; the kernel escapes those within, but no other white space. The source may be empty.
	front, back := strings.Split(before, " "), strings.SplitN(after, " ", 3)
	if !found || len(front) < 6 || len(back) < 2 || back[0] == "" {
		return Mount{}, fmt.Errorf("%q has not the fields of a mount", line)
	}
	id, err := strconv.Atoi(front[0])
	if err != nil {
		return Mount{}, fmt.Errorf("mount ID %q is no number", front[0])
	}
	parent, err := strconv.Atoi(front[1])
	if err != nil {
		return Mount{}, fmt.Errorf("parent ID %q is no number", front[1])
	}
	m := Mount{ID: id, Parent: parent, Root: unescape(front[3]), Point: unescape(front[4]), Type: back[0]}
	if !strings.HasPrefix(m.Point, "/") {
		return Mount{}, fmt.Errorf("mount point %q is not absolute", m.Point)
	}
	if len(back) > 2 {
		m.SuperOptions = strings.Split(back[2], ",")
	}
	return m, nil
}

// unescape undoes the kernel's octal escapes of space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// visible are the mounts that a path leads to: those not covered by a later mount on the same directory
// or above. Mounts are followed from the root as the kernel walks a path.
func visible(mounts []Mount) []Mount {
	type place struct {
		parent int
		point  string
	}
	at, known := map[place]Mount{}, map[int]bool{}
	for _, m := range mounts {
		at[place{m.Parent, path.Clean(m.Point)}] = m
		known[m.ID] = true
	}
	root := Mount{ID: -1}
	for _, m := range mounts {
		if m.Point == "/" && !known[m.Parent] {
			root = m
		}
	}
	reaches := func(target Mount) bool {
		current := root
		for _, prefix := range prefixes(target.Point) {
			for range mounts { // mounts stacked on one directory; bounded, should two name each other as parent
				next, covered := at[place{current.ID, prefix}]
				if !covered || next.ID == current.ID {
					break
				}
				current = next
			}
		}
		return current.ID == target.ID
	}
	var seen []Mount
	for _, m := range mounts {
		if reaches(m) {
			seen = append(seen, m)
		}
	}
	return seen
}

// prefixes of /a/b are /, /a and /a/b.
func prefixes(point string) []string {
	all := []string{"/"}
	clean := path.Clean(point)
	for i, c := range clean {
		if c == '/' && i > 0 {
			all = append(all, clean[:i])
		}
	}
	if clean != "/" {
		all = append(all, clean)
	}
	return all
}
