// Command criticality repeats the stress test of MC-Kube on this machine's kernel: nine periodic tasks per core in
// the ratio 16:24:32 of High, Middle and Low criticality, High and Middle ones overrunning now and then, a
// spinning ordinary thread beside them, and deadline misses counted by the tasks themselves: under plain CFS,
// with budgets fixed at runtime_low, and with the node agent in its two modes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/test/bench/report"
	"github.com/mainspring-rt/mainspring/test/bench/rig"
)

// bench is what is run, and with what.
type bench struct {
	programs rig.Programs
	backends []string
	core     int
	seed     uint64
	periods  int64 // of the longest period
	dir      string
	out      string
}

// granularityUs is charged to every budget by admission. The backend fifo ends budgets within it. The tick of
// rtgroup is later, but no job here needs more than its high budget, so none is ended late.
const granularityUs = 150

func main() {
	b := bench{}
	backends := flag.String("backends", "rtgroup,fifo", "backends to run, the last is the one whose figures are printed last")
	quick := flag.Bool("quick", false, "run a tenth: a smoke test, no figures to quote")
	flag.StringVar(&b.out, "out", "out/bench", "folder for the figures and the report")
	flag.IntVar(&b.core, "core", runtime.NumCPU()-1, "core of the tasks; another one is the host's")
	flag.Uint64Var(&b.seed, "seed", 1, "seed of the sets and of all jobs")
	flag.Int64Var(&b.periods, "periods", 1000, "periods of the tasks with the longest one")
	b.programs.AddFlags(flag.CommandLine)
	flag.Parse()
	if *quick {
		b.periods /= 10
	}
	b.backends = strings.Split(*backends, ",")
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
	return time.Duration(b.periods*periodsUs[len(periodsUs)-1]) * time.Microsecond
}

func (b bench) run(ctx context.Context) error {
	if err := b.programs.Resolve(); err != nil {
		return err
	}
	if b.periods < 1 {
		return fmt.Errorf("--periods %d: want at least 1", b.periods)
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
	if err := writePage(b.out, environment, sets, found); err != nil {
		return err
	}
	for _, r := range found {
		fmt.Printf("\nbackend %s\n%s\n", r.backend, r.table(sets))
		path := fmt.Sprintf("%s/criticality-%s.json", b.out, r.backend)
		if err := report.Write(os.Stdout, path, environment, r.figures(sets, b.seed)); err != nil {
			return err
		}
	}
	return nil
}

// sets are the densest admitted ones of each kind.
func (b bench) sets() ([]set, error) {
	core := rt.Core{ID: b.core, Sibling: rt.NoSibling, Capacity: rt.MaxCapacity, Granularity: granularityUs, Policy: rt.EDF}
	var out []set
	for _, k := range kinds {
		s, err := densest(k, core, b.seed)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%s: %.0f %% of the core by high budgets, %s\n", s.kind, 100*s.total, s.verdict)
		out = append(out, s)
	}
	return out, nil
}
