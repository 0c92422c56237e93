package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/mainspring-rt/mainspring/pkg/test/timing"
)

// suites is one call of Ginkgo for a set of suites.
type suites struct {
	names []string // directories below test/suites; none: all of them
	// processes is how many of Ginkgo's processes, each with a control plane of its own, share the specs of a suite.
	processes int
	args      []string // more of Ginkgo
}

func (s suites) planned(name string) plannedStep { return plannedStep{name, s.run} }

// run runs the suites and repeats, once, what test/second-tries.yaml names.
func (s suites) run(ctx context.Context, at *step) error {
	failed, err := s.once(ctx, at)
	if err == nil {
		return nil
	}
	r := at.results
	again, refused := r.list.allow(failed)
	if len(failed) == 0 || len(refused) > 0 {
		return fmt.Errorf("%w: %s", err, strings.Join(refused, "; "))
	}
	for suite, specs := range again {
		r.addSecondTries(specs)
		one := s
		one.names, one.args = []string{suite}, append(one.args, "--focus=^("+strings.Join(names(specs), "|")+")$")
		if _, err := one.once(ctx, at); err != nil {
			return fmt.Errorf("at the second try: %w", err)
		}
	}
	return nil
}

// once runs Ginkgo and returns the specs that failed.
func (s suites) once(ctx context.Context, at *step) ([]testID, error) {
	r := at.results
	dir, err := os.MkdirTemp(r.dir, "suites-")
	if err != nil {
		return nil, fmt.Errorf("making the directory of the reports: %w", err)
	}
	args := []string{
		"run", "github.com/onsi/ginkgo/v2/ginkgo", "--no-color", fmt.Sprintf("--procs=%d", s.processes), "--timeout=" + r.timeout().String(),
		// golangci-lint vets the same code in make verify.
		"--vet=off", "--ldflags=" + stripped, "--poll-progress-after=3m", "--keep-going", "--keep-separate-reports", "--json-report=" + reportName, "--output-dir=" + dir,
	}
	args = append(args, s.args...)
	args = append(args, s.paths()...)
	ran := at.command(ctx, nil, "go", args...)
	failed, err := r.readGinkgo(dir)
	if ran != nil {
		ran = fmt.Errorf("suites: %w", ran)
	}
	return failed, errors.Join(ran, err)
}

const reportName = "suite.json"

func (s suites) paths() []string {
	if len(s.names) == 0 {
		return []string{"./test/suites/..."}
	}
	var paths []string
	for _, name := range s.names {
		paths = append(paths, "./test/suites/"+name)
	}
	return paths
}

// readGinkgo adds the times of every report below dir, and returns what failed. A suite that fails outside of its specs is one
// with an empty name.
func (r *results) readGinkgo(dir string) ([]testID, error) {
	var failed []testID
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, reportName) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var reports []types.Report
		if err := json.Unmarshal(content, &reports); err != nil {
			return fmt.Errorf("reading %s: %w", filepath.Base(path), err)
		}
		for _, report := range reports {
			failed = append(failed, r.addSuite(report)...)
		}
		return nil
	})
	if err != nil {
		return failed, fmt.Errorf("reading the reports of the suites: %w", err)
	}
	return failed, nil
}

func (r *results) addSuite(report types.Report) []testID {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := suiteTime{name: filepath.Base(report.SuitePath), wall: report.RunTime, failed: !report.SuiteSucceeded}
	var failed []testID
	for _, spec := range report.SpecReports {
		id := testID{Where: s.name, Name: spec.FullText(), Package: s.name}
		switch {
		case !spec.LeafNodeType.Is(types.NodeTypeIt):
			s.setup += spec.RunTime
			if spec.Failed() {
				failed = append(failed, testID{Where: s.name, Package: s.name})
				r.addFailure(failed[len(failed)-1], spec)
			}
		case spec.State.Is(types.SpecStateSkipped | types.SpecStatePending):
		default:
			s.specs++
			s.sum += spec.RunTime
			r.tests = append(r.tests, testTime{testID: id, wall: spec.RunTime, failed: spec.Failed()})
			if spec.Failed() {
				failed = append(failed, id)
				r.addFailure(id, spec)
			}
		}
	}
	if s.failed && len(failed) == 0 {
		failed = append(failed, testID{Where: s.name, Package: s.name})
	}
	r.suites = append(r.suites, s)
	return failed
}

// addFailure notes where and why a spec failed, and how things stood. The caller has the lock.
func (r *results) addFailure(id testID, spec types.SpecReport) {
	said := strings.Split(spec.FailureLocation().String()+"\n"+spec.FailureMessage(), "\n")
	said = said[:min(len(said), keptLines)]
	for _, entry := range spec.ReportEntries {
		if entry.Name == timing.Summary {
			said = append(said, strings.Split(entry.StringRepresentation(), "\n")...)
		}
	}
	r.failures = append(r.failures, failure{tests: []testID{id}, output: said})
}

// suiteTime is what a suite took.
type suiteTime struct {
	name   string
	wall   time.Duration
	setup  time.Duration // of all processes together
	specs  int
	sum    time.Duration // of all specs
	failed bool
}
