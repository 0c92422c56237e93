package agent

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/host"
)

const (
	// trimAfter is when starting is over.
	trimAfter = 10 * time.Second
	// trimEvery is how often pages that were needed once are given back.
	trimEvery = time.Minute
)

// trimmer gives memory back that only starting needed: most of what the process has of its own program file,
// because starting goes through all of it. The pages are clean and come back when they are used.
type trimmer struct {
	clock clock.Clock
	log   logr.Logger
}

// Name implements Service.
func (t *trimmer) Name() string { return "trim" }

// Run trims until ctx ends.
func (t *trimmer) Run(ctx context.Context) error {
	for wait := trimAfter; ; wait = trimEvery {
		timer := t.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		debug.FreeOSMemory()
		if err := trim(); err != nil {
			t.log.V(1).Info("the program's pages stay in memory", "why", err.Error())
		}
	}
}

// trim drops the mapped pages of the program's file.
func trim() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	maps, err := os.ReadFile(host.New("/").Proc("self", "smaps"))
	if err != nil {
		return fmt.Errorf("reading the mappings: %w", err)
	}
	for _, m := range cleanMappings(string(maps), program) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("giving pages back: %w", errno)
		}
	}
	return nil
}

// mapping of memory, from start up to end.
type mapping struct{ start, end uintptr }

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
	return &mapping{start: uintptr(start), end: uintptr(end)}
}
