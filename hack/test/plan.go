package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/mainspring-rt/mainspring/pkg/toolchain"
)

// execCommand is the command by which `go test -exec` runs test binaries.
const execCommand = "exec"

// What the kinds of packages need.
var (
	// longest take minutes. They begin first, or one of them is alone at the end.
	longest = []string{
		"./pkg/controllers/ladder", "./pkg/controllers/migration", "./pkg/controllers/rtruntime", "./pkg/agent/actuator",
		"./pkg/orchestration", "./pkg/controllers/provisioning", "./pkg/agent", "./test/charts",
	}
	// arithmetic has no goroutine: the race detector finds nothing there, and takes fifteen times as long.
	arithmetic = []string{"./pkg/rt", "./pkg/rt/sim", "./pkg/agent/governor", "./pkg/orchestration/rules"}
	// whole are tested at every kill point without the race detector.
	whole = []string{"./pkg/controllers/migration", "./pkg/agent/actuator"}
)

type options struct {
	suites     string
	exhaustive bool
	ginkgo     string
	focus      string
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.StringVar(&o.suites, "suite", "all", "the suites to run, with commas between them")
	flags.StringVar(&o.focus, "focus", "", "run only specs whose text matches this regular expression")
	flags.StringVar(&o.ginkgo, "ginkgo", "", "more flags for Ginkgo, with spaces between them")
	flags.BoolVar(&o.exhaustive, "exhaustive", false, "try every kill point and every random history")
	what := "all"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		what, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	list, err := readSecondTries(secondTriesFile)
	if err != nil {
		return err
	}
	r, err := newResults(os.Stdout, list)
	if err != nil {
		return err
	}
	r.exhaustive = o.exhaustive
	var failures []error
	for _, s := range r.plan(ctx, what, o) {
		failures = append(failures, r.step(s.name, s.do))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(append(failures, r.write())...)
}

type plannedStep struct {
	name string
	do   func() error
}

func (r *results) plan(ctx context.Context, what string, o options) []plannedStep {
	var steps []plannedStep
	add := func(name string, do func() error) { steps = append(steps, plannedStep{name, do}) }
	add("tools", func() error { return tools(ctx) })
	if what == "all" || what == "unit" {
		add("unit", func() error {
			return goTests{name: "unit", packages: slices.Concat(whole, arithmetic), parallel: 2}.run(ctx, r)
		})
		add("race", func() error {
			packages, err := racing(ctx)
			if err != nil {
				return err
			}
			return goTests{name: "race", packages: packages, race: true, parallel: 3}.run(ctx, r)
		})
	}
	if what == "all" || what == "e2e" {
		add("suites", func() error { return o.suitesOf().run(ctx, r) })
	}
	return steps
}

func (o options) suitesOf() suites {
	s := suites{processes: 6}
	if o.suites != "all" && o.suites != "" {
		s.names = strings.Split(o.suites, ",")
	}
	s.args = strings.Fields(o.ginkgo)
	if o.focus != "" {
		s.args = append(s.args, "--focus="+o.focus)
	}
	return s
}

func tools(ctx context.Context) error {
	_, err := toolchain.Ensure(ctx, os.Stderr)
	return err
}

// racing are the packages that are tested with the race detector, the longest first.
func racing(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "./cmd/...", "./pkg/...", "./hack/...", "./test/bench/...", "./test/charts/...").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages: %w", err)
	}
	packages := slices.Clone(longest)
	for pkg := range strings.Lines(string(out)) {
		pkg = "./" + relative(strings.TrimSpace(pkg))
		if !slices.Contains(longest, pkg) && !slices.Contains(arithmetic, pkg) {
			packages = append(packages, pkg)
		}
	}
	return packages, nil
}
