package checkpoint

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/mainspring-rt/mainspring/pkg/printable"
)

const (
	// criuLogEnd is how many bytes of CRIU's log are read, from its end: what has failed is told last.
	criuLogEnd = 64 << 10
	// criuErrors is how many of its errors are told, and criuErrorLimit how many bytes all of them have.
	criuErrors     = 3
	criuErrorLimit = 512
)

var (
	// criuLogPath is how containerd's shim names the copy that it keeps of the log of a dump that failed (cmd/containerd-shim-runc-v2/process/init.go).
	criuLogPath = regexp.MustCompile(`/[^\s:"]+/criu-dump\.log`)
	// criuError is a line of an error: the time since CRIU's start, the place in its source and what failed (criu/include/criu-log.h).
	criuError = regexp.MustCompile(`^(?:\([0-9.]+\) +)?(?:[0-9]+: )?Error (\(.*)$`)
)

// explainDump adds CRIU's own last errors to that of a dump: the kubelet says only where they are.
func explainDump(err error) error {
	path := criuLogPath.FindString(err.Error())
	if path == "" {
		return err
	}
	lines, unread := readCRIUErrors(path)
	switch {
	case unread != nil:
		return fmt.Errorf("%w; CRIU's log cannot be read: %w", err, unread)
	case lines == "":
		return err
	}
	return fmt.Errorf("%w; CRIU: %s", err, lines)
}

// readCRIUErrors returns the last errors of a log, the first of them first; empty: it has none.
func readCRIUErrors(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	end := io.NewSectionReader(f, max(0, info.Size()-criuLogEnd), criuLogEnd)
	text, err := io.ReadAll(end)
	if err != nil {
		return "", err
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if match := criuError.FindStringSubmatch(strings.TrimRight(line, "\n")); match != nil {
			found = append(found, printable.Line(match[1]))
		}
	}
	found = found[max(0, len(found)-criuErrors):]
	return clip(strings.Join(found, "; "), criuErrorLimit), nil
}
