package main

import (
	"fmt"
	"slices"
	"strings"
)

// keptLines is how many lines of what failed the run prints once more at its end; keptDump is how many of what every goroutine of a program
// that died was doing.
const (
	keptLines = 60
	keptDump  = 300
)

// failure is what failed, and the last lines that it printed.
type failure struct {
	tests  []testID
	output []string
}

// lastLines drops all but the last lines.
func lastLines(lines []string) []string {
	if len(lines) <= keptLines {
		return lines
	}
	return slices.Delete(lines, 0, len(lines)-keptLines)
}

// dies reports whether a Go program dies with this line. What its goroutines did follows.
func dies(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIGQUIT: ")
}

// printFailures prints what failed once more: lanes beside it have printed since, and logs are often kept by their end.
func (r *results) printFailures() {
	for _, f := range r.failures {
		var names []string
		for _, t := range f.tests {
			names = append(names, t.String())
		}
		fmt.Fprintf(r.out, "=== FAILED: %s\n", strings.Join(names, ", "))
		for _, line := range f.output {
			fmt.Fprintln(r.out, line)
		}
	}
}
