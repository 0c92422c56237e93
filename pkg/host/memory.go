package host

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
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
	bytes, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("asking for the memory of control group %s: %w", group, err)
	}
	return bytes, nil
}
