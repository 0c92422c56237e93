package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// stripped has the linker leave symbols out, which takes it a quarter less time. Go's own stack traces do not need them.
const stripped = "-s -w"

// raceEnv has C: the race detector's library is.
const raceEnv = "CGO_ENABLED=1"

// goTests is one call of `go test` for a set of packages.
type goTests struct {
	name     string // of the step
	packages []string
	race     bool
	args     []string // more of `go test`
	// parallel is how many packages are tested at once. Those that wait for API servers and for the lock of the
	// machine leave a core free, so it is more than there are cores.
	parallel int
	// timeout of a package, where it is less than the run's: tests that wait for the kernel may wait for ever.
	timeout time.Duration
}

// event is a line of `go test -json` (cmd/test2json).
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string  // of the output of a build, instead of Package
	Elapsed                       float64 // seconds
}

func (g goTests) planned() plannedStep { return plannedStep{g.name, g.run} }

// run tests the packages and repeats, once, what test/second-tries.yaml names.
func (g goTests) run(ctx context.Context, s *step) error {
	failed, err := g.once(ctx, s, g.packages, "")
	if err == nil {
		return nil
	}
	r := s.results
	again, refused := r.list.allow(failed)
	if len(failed) == 0 || len(refused) > 0 {
		return fmt.Errorf("%w: %s", err, strings.Join(refused, ", "))
	}
	for pkg, tests := range again {
		r.addSecondTries(tests)
		pattern := "^(" + strings.Join(names(tests), "|") + ")$"
		if _, err := g.once(ctx, s, []string{pkg}, pattern); err != nil {
			return fmt.Errorf("at the second try: %w", err)
		}
	}
	return nil
}

// once runs gotestsum and returns the tests that failed.
func (g goTests) once(ctx context.Context, s *step, packages []string, pattern string) ([]testID, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	bin, err := toolchain.Ensure(ctx, s, toolchain.Gotestsum)
	if err != nil {
		return nil, err
	}
	r := s.results
	file, err := os.CreateTemp(r.dir, strings.NewReplacer(" ", "-", "/", "-").Replace(g.name)+"-*.json")
	if err != nil {
		return nil, fmt.Errorf("making the record of %s: %w", g.name, err)
	}
	defer file.Close()
	args := []string{"--format=pkgname", "--format-hide-empty-pkg", "--hide-summary=skipped", "--jsonfile=" + file.Name(), "--packages=" + strings.Join(packages, " "), "--"}
	// golangci-lint vets the same code in `make verify`.
	args = append(args, "-ldflags="+stripped, "-exec='"+self+"' "+execCommand+" '"+g.name+"'", "-count=1", "-vet=off", fmt.Sprintf("-parallel=%d", testsAtOnce), "-timeout="+cmp.Or(g.timeout, r.timeout()).String(), fmt.Sprintf("-p=%d", g.parallel))
	var env []string
	if g.race {
		args, env = append(args, "-race"), []string{raceEnv}
	}
	if pattern != "" {
		args = append(args, "-run="+pattern)
	}
	ran := s.command(ctx, env, bin[toolchain.Gotestsum], append(args, g.args...)...)
	failed, err := r.readGoTests(g.name, file)
	if ran != nil {
		ran = fmt.Errorf("%s: %w", g.name, ran)
	}
	return failed, errors.Join(ran, err)
}

// readGoTests adds the times of a run of `go test -json`, and returns what failed. A package that fails without a test that does (it does not
// compile, or its program dies) fails in the tests that had not ended, or else in a test with an empty name.
func (r *results) readGoTests(step string, events io.Reader) ([]testID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var failed []testID
	packages := map[string]*packageEvents{}
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // what a build prints where it does not print events
		}
		pkg := e.of(packages)
		took := time.Duration(e.Elapsed * float64(time.Second))
		id := testID{Where: relative(e.Package), Name: e.Test, Package: e.Package}
		switch top := e.Test != "" && !strings.Contains(e.Test, "/"); {
		case e.Output != "":
			pkg.add(e.Test, e.Output)
		case top && e.Action == "run":
			pkg.running = append(pkg.running, id)
		case e.Action != "pass" && e.Action != "fail", e.Test != "" && !top:
		case top:
			pkg.running = slices.DeleteFunc(pkg.running, func(other testID) bool { return other == id })
			r.tests = append(r.tests, testTime{testID: id, wall: took, failed: e.Action == "fail"})
			if e.Action == "pass" {
				delete(pkg.outputOf, id.Name)
			}
			if e.Action == "fail" {
				pkg.failed = append(pkg.failed, id)
			}
		default:
			r.packages = append(r.packages, packageTime{step: step, name: id.Where, wall: took, failed: e.Action == "fail"})
			if e.Action == "fail" {
				ended := pkg.ended(id)
				failed = append(failed, ended...)
				r.failures = append(r.failures, failure{tests: ended, output: pkg.printed(ended)})
			}
		}
	}
	if err := lines.Err(); err != nil {
		return failed, fmt.Errorf("reading the events of %s: %w", step, err)
	}
	return failed, nil
}

// packageEvents are what is known of a package until its tests end.
type packageEvents struct {
	running, failed []testID
	output          []string               // its last lines; from where its program died the first
	outputOf        map[string]*testOutput // of each top-level test that has not passed, its subtests' among it
	died            bool
}

// of returns the package that an event is of. The output of a build names it, with the package's variant for tests.
func (e event) of(packages map[string]*packageEvents) *packageEvents {
	name, _, _ := strings.Cut(cmp.Or(e.Package, e.ImportPath), " ")
	name = strings.TrimSuffix(name, "_test")
	if packages[name] == nil {
		packages[name] = &packageEvents{outputOf: map[string]*testOutput{}}
	}
	return packages[name]
}

// add keeps a line that a test printed, or the program outside of its tests.
func (p *packageEvents) add(test, output string) {
	line := strings.TrimSuffix(output, "\n")
	p.died = p.died || dies(line)
	switch {
	case !p.died:
		p.output = lastLines(append(p.output, line))
	case len(p.output) < keptLines+keptDump:
		p.output = append(p.output, line)
	}
	if top, _, _ := strings.Cut(test, "/"); top != "" {
		if p.outputOf[top] == nil {
			p.outputOf[top] = &testOutput{}
		}
		p.outputOf[top].add(line)
	}
}

// printed returns what the failed tests printed. A program that died, or failed outside of its tests, has no test to blame: it is what the program
// printed last.
func (p *packageEvents) printed(failed []testID) []string {
	var lines []string
	if !p.died {
		for _, t := range failed {
			if o := p.outputOf[t.Name]; o != nil {
				lines = append(lines, o.lines()...)
			}
		}
	}
	if len(lines) == 0 {
		return p.output
	}
	return lines
}

// ended returns what failed of a package that did.
func (p *packageEvents) ended(pkg testID) []testID {
	switch {
	case len(p.failed) > 0:
		return p.failed
	case len(p.running) > 0:
		return p.running
	default:
		return []testID{pkg}
	}
}

const module = "github.com/mainspring-rt/mainspring/"

func relative(pkg string) string { return strings.TrimPrefix(pkg, module) }

// names are those of the tests, quoted for -run.
func names(tests []testID) []string {
	var list []string
	for _, t := range tests {
		list = append(list, regexp.QuoteMeta(t.Name))
	}
	return list
}
