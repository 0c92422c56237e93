package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// execCommand is the command by which `go test -exec` runs test binaries.
const execCommand = "exec"

// options are what the user asks for.
type options struct {
	what       string // all, unit or e2e
	suites     []string
	focus      string
	ginkgo     []string
	exhaustive bool
}

func parse(args []string) (options, error) {
	o := options{what: "all"}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.what, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	names := flags.String("suite", "", "the suites to run, with commas between them; empty or all: all of them")
	ginkgo := flags.String("ginkgo", "", "more flags for Ginkgo, with spaces between them")
	flags.StringVar(&o.focus, "focus", "", "run only specs whose text matches this regular expression")
	flags.BoolVar(&o.exhaustive, "exhaustive", false, "try every kill point and every random history")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown arguments %q", flags.Args())
	}
	o.ginkgo = strings.Fields(*ginkgo)
	if *names != "" && *names != "all" {
		o.suites = strings.Split(*names, ",")
	}
	for _, name := range o.suites {
		if info, err := os.Stat("test/suites/" + name); err != nil || !info.IsDir() {
			return o, fmt.Errorf("there is no suite %q in test/suites", name)
		}
	}
	return o, nil
}

// run does what the arguments ask for, and writes the table of times whether it succeeds or not.
func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	list, err := readSecondTries(secondTriesFile)
	if err != nil {
		return err
	}
	first, lanes, err := o.plan()
	if err != nil {
		return err
	}
	r, err := newResults(os.Stdout, list)
	if err != nil {
		return err
	}
	if err := sampleBySeed(r, o.exhaustive); err != nil {
		return err
	}
	stop := r.reportProgress()
	err = r.do(ctx, first, lanes)
	stop()
	return errors.Join(err, r.write())
}

// sampleBySeed sets the seed by which tests sample, for every program of the run, and prints it.
func sampleBySeed(r *results, exhaustive bool) error {
	if exhaustive {
		r.exhaustive = true
		return os.Setenv(sampling.ExhaustiveVariable, "1")
	}
	if os.Getenv(sampling.SeedVariable) == "" {
		if err := os.Setenv(sampling.SeedVariable, strconv.FormatUint(uint64(rand.Uint32()), 10)); err != nil {
			return fmt.Errorf("setting the seed: %w", err)
		}
	}
	r.print("tests sample by %s=%s", sampling.SeedVariable, os.Getenv(sampling.SeedVariable))
	return nil
}

// do runs the first steps, and then the lanes beside each other. A lane ends with its first step that fails by an error that
// leaves nothing to test; a step whose tests fail does not keep the next from being run.
func (r *results) do(ctx context.Context, first []plannedStep, lanes []lane) error {
	for _, p := range first {
		if err := r.step(ctx, p, lane{}); err != nil {
			return err
		}
	}
	errs := make([]error, len(lanes))
	var running sync.WaitGroup
	for i, l := range lanes {
		if len(lanes) == 1 {
			l.name = "" // its output needs no mark
		}
		running.Go(func() {
			for _, p := range l.steps {
				if ctx.Err() == nil {
					errs[i] = errors.Join(errs[i], r.step(ctx, p, l))
				}
			}
		})
	}
	running.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}
