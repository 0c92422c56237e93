package host

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Memory is how much the kernel charges to a control group, caches of files included, in bytes.
func (c Cgroups) Memory(group string) (int64, error) {
	file := "memory.usage_in_bytes"
	if c.InUnified("memory") {
		file = "memory.current"
	}
	dir, err := c.Dir("memory", group)
	if err != nil {
		return 0, err
	}
	text, err := readString(filepath.Join(dir, file))
	if err != nil {
		return 0, fmt.Errorf("asking for the memory of control group %s: %w", group, err)
	}
	bytes, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("asking for the memory of control group %s: %s is %q; want a number of bytes", group, file, text)
	}
	return int64(bytes), nil
}
