// Package timing records how long parts of a test run take, for the table that `make test` writes.
//
// A part is appended as one JSON line to the file that the environment variable Variable names. Without the variable
// nothing is recorded, so that `go test` alone needs no set-up. Only tests and hack/test import this package.
package timing

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Variable names the environment variable that holds the path of the record.
const Variable = "MAINSPRING_TEST_TIMES"

// Summary names the report entry of a failed spec that the run prints once more at its end: how things stood, in a few lines.
const Summary = "summary"

// Kind is what a part is.
type Kind string

const (
	// Program is one run of a test binary, with the processes that it waited for.
	Program Kind = "program"
	// ControlPlane is one start of a control plane, until it answers.
	ControlPlane Kind = "control plane"
	// Build is one build of the programs that a suite runs.
	Build Kind = "build"
)

// Part is one line of the record.
type Part struct {
	Kind Kind `json:"kind"`
	// Step is the step of the run, for a Program.
	Step string `json:"step,omitempty"`
	// Name is the import path of a package, or the name of a suite.
	Name string `json:"name"`
	// Wall is the elapsed time, in nanoseconds.
	Wall time.Duration `json:"wall"`
	// CPU is the user and system time of the process and of all that it waited for, in nanoseconds; 0: not measured.
	CPU time.Duration `json:"cpu,omitempty"`
}

// Start begins a part. The function that it returns ends and records it.
func Start(kind Kind, name string) (end func()) {
	began := time.Now()
	return func() { _ = Record(Part{Kind: kind, Name: name, Wall: time.Since(began)}) } // a table without a row fails no test
}

// Record appends a part to the record, if there is one. Several processes may write to it: a line is one write.
func Record(p Part) error {
	path := os.Getenv(Variable)
	if path == "" {
		return nil
	}
	line, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding a part of the times: %w", err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the record of times: %w", err)
	}
	_, err = file.Write(append(line, '\n'))
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("recording a part of the times: %w", err)
	}
	return nil
}
