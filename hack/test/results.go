package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/test/environment/programs"
	"github.com/mainspring-rt/mainspring/pkg/test/timing"
)

// results are what a run has found out so far.
type results struct {
	dir        string // of raw records
	programs   string // directory of what the suites run; empty until they are built
	exhaustive bool
	list       secondTries
	began      time.Time
	start      machine

	mu          sync.Mutex // guards the rest, as steps run beside each other
	out         io.Writer
	printed     time.Time // when out was last written to
	running     []*step
	steps       []stepTime
	packages    []packageTime
	suites      []suiteTime
	tests       []testTime
	secondTries []testID
	failures    []failure
}

// stepTime is what a step took.
type stepTime struct {
	name string
	wall time.Duration
	// cpu is that of the step's processes.
	cpu time.Duration
	// used is what all cores of the machine did meanwhile, for this run or for others.
	used   machine
	failed bool
}

// packageTime is what the tests of a package took.
type packageTime struct {
	step, name string
	wall       time.Duration
	failed     bool
}

// testTime is what a top-level test or a spec took.
type testTime struct {
	testID
	wall   time.Duration
	failed bool
}

const (
	outDir     = "out"
	recordDir  = "test-times"
	recordFile = "parts.jsonl"
	// reportFile is where users find the table.
	reportFile = "test-times.md"
)

// newResults begins a run, whose records replace those of the run before.
func newResults(out io.Writer, list secondTries) (*results, error) {
	dir, err := filepath.Abs(filepath.Join(outDir, recordDir))
	if err != nil {
		return nil, fmt.Errorf("resolving %s: %w", outDir, err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, fmt.Errorf("making the directory of the records: %w", err)
	}
	return &results{out: out, dir: dir, list: list, began: time.Now(), start: readMachine()}, nil
}

// environ is that of every program of the run.
func (r *results) environ() []string {
	env := []string{timing.Variable + "=" + filepath.Join(r.dir, recordFile), programs.Variable + "=" + r.programs}
	if os.Getenv("GOGC") == "" {
		// Memory is there, and collecting garbage is a tenth to a quarter of what API servers of tests do.
		env = append(env, "GOGC=500")
	}
	return env
}

// addSecondTries notes which tests are tried again. What they said at the first try is no failure of the run.
func (r *results) addSecondTries(tests []testID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secondTries = append(r.secondTries, tests...)
	r.failures = slices.DeleteFunc(r.failures, func(f failure) bool {
		return !slices.ContainsFunc(f.tests, func(t testID) bool { return !slices.Contains(tests, t) })
	})
}

// print writes a line of the run's own.
func (r *results) print(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
	r.printed = time.Now()
}

// timeout bounds a step.
func (r *results) timeout() time.Duration {
	if r.exhaustive {
		return 8 * time.Hour
	}
	return time.Hour // lanes take half of that on most machines, and twice as long on some
}

// parts are what the programs of the run have recorded.
func (r *results) parts() ([]timing.Part, error) {
	content, err := os.ReadFile(filepath.Join(r.dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the recorded parts: %w", err)
	}
	var all []timing.Part
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		var p timing.Part
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return all, fmt.Errorf("reading a recorded part: %w", err)
		}
		all = append(all, p)
	}
	return all, lines.Err()
}
