// Package lean keeps processes small.
package lean

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

// Trim gives back the memory that the process does not use: what garbage took, and the mapped pages of its own program
// file. Starting goes through most of that file; the pages are clean and come back when they are used. Not those that
// are locked: the kernel refuses. Code says whether that goes, too; a process that must not wait for a disk keeps it.
func Trim(code bool) error {
	debug.FreeOSMemory()
	return drop(code)
}

// drop the mapped pages of the program's file.
func drop(code bool) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	maps, err := os.ReadFile(host.New("/").Proc("self", "smaps"))
	if err != nil {
		return fmt.Errorf("reading the mappings: %w", err)
	}
	for _, m := range cleanMappings(string(maps), program) {
		if m.code && !code {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("giving pages back: %w", errno)
		}
	}
	return nil
}

// mapping of memory, from start up to end, and whether it is code.
type mapping struct {
	start, end uintptr
	code       bool
}

// cleanMappings are those of a file that nobody can write and that hold none but the file's own pages: others,
// such as what a loader has relocated, would be lost.
func cleanMappings(smaps, file string) []mapping {
	var out []mapping
	var current *mapping
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 6 && strings.Contains(fields[0], "-"):
			current = headOf(fields, file)
		case current != nil && len(fields) == 3 && fields[0] == "Anonymous:":
			if fields[1] == "0" {
				out = append(out, *current)
			}
			current = nil
		case len(fields) == 5 && strings.Contains(fields[0], "-"): // of no file
			current = nil
		}
	}
	return out
}

// headOf reads the first line of a mapping; nil for one that is not wanted.
func headOf(fields []string, file string) *mapping {
	if strings.Contains(fields[1], "w") || fields[5] != file {
		return nil
	}
	low, high, _ := strings.Cut(fields[0], "-")
	start, err := strconv.ParseUint(low, 16, 64)
	if err != nil {
		return nil
	}
	end, err := strconv.ParseUint(high, 16, 64)
	if err != nil || end <= start {
		return nil
	}
	return &mapping{start: uintptr(start), end: uintptr(end), code: strings.Contains(fields[1], "x")}
}
