// Command criticality repeats the stress test of MC-Kube on this machine's kernel: nine periodic tasks per core in
// the ratio 16:24:32 of High, Middle and Low criticality, High and Middle ones overrunning now and then, busy
// ordinary threads beside them, and deadline misses counted by the tasks themselves: under plain CFS,
// with budgets fixed at runtime_low, and with the node agent in its two modes, on every backend that works here.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/test/bench/report"
	"github.com/mainspring-rt/mainspring/test/bench/rig"
)

// bench is what is run, and with what.
type bench struct {
	programs rig.Programs
	backends []string
	core     int
	seed     uint64
	periods  int64 // of the short period
	scale    int64 // of all times
	spinners int   // beside the tasks
	nice     int   // of one more
	kinds    []kind
	trace    bool
	dir      string
	out      string
	progress *progress
}

// Backends that are run; the figures of the last are printed last.
const (
	allBackends   = "deadline,cfs,rtgroup,fifo"
	quickBackends = "rtgroup,fifo"
)

func main() {
	b := bench{}
	backends := flag.String("backends", "", "backends to run, "+allBackends+" when empty; one that does not work here is left out, with the reason")
	quick := flag.Bool("quick", false, "run a tenth of the periods, and only "+quickBackends+" unless --backends names others: a smoke test, no figures to quote")
	flag.StringVar(&b.out, "out", "out/bench", "folder for the figures and the report")
	flag.IntVar(&b.core, "core", runtime.NumCPU()-1, "core of the tasks; another one is the host's")
	flag.Uint64Var(&b.seed, "seed", 1, "seed of the sets and of all jobs")
	flag.Int64Var(&b.periods, "periods", 1000, "for how many periods of the short period jobs are released")
	flag.Int64Var(&b.scale, "scale", 1, "what periods and budgets are multiplied by; from about 40 on sets are admitted with a tick as granularity")
	flag.IntVar(&b.spinners, "spinners", 8, "busy threads of nice 0 on the core of the tasks; with them comes one of --nice")
	flag.IntVar(&b.nice, "nice", -20, "nice value of one more busy thread; at -20 it has 87 times the share of an ordinary one")
	flag.BoolVar(&b.trace, "trace", true, "have the kernel record who has the core, to say of late High jobs why")
	sets := flag.String("sets", "", "kinds of sets to run; all when empty")
	b.programs.AddFlags(flag.CommandLine)
	flag.Parse()
	names := cmp.Or(*backends, allBackends)
	if *quick {
		b.periods /= 10
		names = cmp.Or(*backends, quickBackends)
	}
	b.backends, b.kinds = strings.Split(names, ","), named(*sets)
	ctx, stop := signal.NotifyContext(context.Background(), rig.Signals...)
	err := b.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-criticality: %v\n", err)
		os.Exit(1)
	}
}

// duration for which jobs are released.
func (b bench) duration() time.Duration {
	return time.Duration(b.periods*shortUs*b.scale) * time.Microsecond
}

func (b bench) validate() error {
	switch {
	case b.duration().Microseconds() < longUs*b.scale:
		return fmt.Errorf("--periods %d: want at least %d, one of the long period", b.periods, longUs/shortUs)
	case b.scale < 1 || longUs*b.scale > 10_000_000:
		return fmt.Errorf("--scale %d: want 1 to %d", b.scale, 10_000_000/longUs)
	case len(b.kinds) == 0:
		return fmt.Errorf("--sets: want some of %s", strings.Join(kindNames(), ","))
	case b.nice < -20 || b.nice > 19:
		return fmt.Errorf("--nice %d: want -20 to 19", b.nice)
	case b.spinners < 0 || b.spinners > 100:
		return fmt.Errorf("--spinners %d: want 0 to 100", b.spinners)
	}
	return nil
}

func (b bench) run(ctx context.Context) error {
	if err := errors.Join(b.validate(), b.programs.Resolve()); err != nil {
		return err
	}
	release, err := rig.Alone()
	if err != nil {
		return err
	}
	defer release()
	if b.dir, err = os.MkdirTemp("", "mainspring-bench-criticality-"); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(b.dir)
	environment := report.ReadEnvironment()
	sets, err := b.sets()
	if err != nil {
		return err
	}
	found, err := b.measure(ctx, sets)
	if err != nil {
		return err
	}
	if err := writePage(b.out, environment, found); err != nil {
		return err
	}
	for _, r := range found {
		fmt.Printf("\nbackend %s\n%s\n", r.backend, r.table())
		path := fmt.Sprintf("%s/criticality-%s.json", b.out, r.backend)
		if err := report.Write(os.Stdout, path, environment, r.figures(b.seed)); err != nil {
			return err
		}
	}
	return nil
}

// sets are the densest admitted ones of each kind.
func (b bench) sets() ([]set, error) {
	var out []set
	for _, k := range b.kinds {
		s, err := densest(k, b.seed, b.scale)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "set %s: %.0f %% of the core by high budgets, %.0f %% by low ones, the %d. that was drawn\n", k.name, 100*s.total, 100*s.low, s.drawn)
		out = append(out, s)
	}
	return out, nil
}
