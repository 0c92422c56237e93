package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// keptLines is how many lines of what failed the run prints once more at its end; keptMessages is how many of the test's own messages, which may
// stand far before the logs that a test prints as it ends; keptDump is how many of what every goroutine of a program that died was doing.
const (
	keptLines    = 60
	keptMessages = 20
	keptDump     = 300
)

// message is the first line of what a test says by t.Log, t.Error or t.Fatal.
var message = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

// testOutput is what a test printed: its first messages, and its last lines.
type testOutput struct {
	messages, last []string
	dropped        int // messages that last does not have any more
}

func (o *testOutput) add(line string) {
	if message.MatchString(line) && len(o.messages) < keptMessages {
		o.messages = append(o.messages, line)
	}
	o.last = append(o.last, line)
	if len(o.last) > keptLines {
		if o.dropped < len(o.messages) && o.last[0] == o.messages[o.dropped] {
			o.dropped++
		}
		o.last = o.last[1:]
	}
}

// lines returns each line once, in the order of printing.
func (o *testOutput) lines() []string { return slices.Concat(o.messages[:o.dropped], o.last) }

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
