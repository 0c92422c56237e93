// Command agent measures the node agent on this machine's kernel: how long after the end of a budget the raised
// one is in force, idle and loaded, how often the raise comes before the end with a lead, what each context
// switch pays, and what the agent takes with a hundred containers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"github.com/mainspring-rt/mainspring/test/bench/report"
	"github.com/mainspring-rt/mainspring/test/bench/rig"
)

// bench is what is measured, and with what.
type bench struct {
	programs rig.Programs
	backend  string
	core     int
	lead     string
	ramp     ramp
	passes   int
	many     ramp
	// crowdOnly leaves out the rounds.
	crowdOnly bool
}

func main() {
	out := flag.String("out", "out/bench/agent.json", "file to write the figures to")
	quick := flag.Bool("quick", false, "measure a tenth: a smoke test, no figures to quote")
	b := bench{}
	flag.StringVar(&b.backend, "backend", "rtgroup", "backend that enforces the budgets")
	flag.IntVar(&b.core, "core", runtime.NumCPU()-1, "core of the servers; another one is the host's")
	flag.StringVar(&b.lead, "lead", "", "lead of the rounds with a lead; empty: the fast path's default")
	flag.BoolVar(&b.crowdOnly, "crowd", false, "measure only what the agent takes with 100 containers; prints one line, writes no file")
	b.programs.AddFlags(flag.CommandLine)
	flag.Parse()
	b.ramp, b.passes, b.many = fewServers, 5, manyServers
	if *quick {
		b.passes = 1
		b.many.levels /= 5
	}
	ctx, stop := signal.NotifyContext(context.Background(), rig.Signals...)
	err := b.run(ctx, *out)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-agent: %v\n", err)
		os.Exit(1)
	}
}

func (b bench) run(ctx context.Context, out string) error {
	if err := b.programs.Resolve(); err != nil {
		return err
	}
	release, err := rig.Alone()
	if err != nil {
		return err
	}
	defer release()
	if b.crowdOnly {
		c, err := b.crowd(ctx)
		if err == nil {
			fmt.Println(c)
		}
		return err
	}
	environment := report.ReadEnvironment()
	var found findings
	for _, loaded := range []bool{false, true} {
		f, err := b.floor(ctx, loaded)
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, f)
		found.floors = append(found.floors, f)
	}
	for _, loaded := range []bool{false, true} {
		for _, lead := range []string{"0us", b.lead} {
			r, err := b.round(ctx, loaded, lead)
			if err != nil {
				return err
			}
			fmt.Fprintln(os.Stderr, r)
			found.rounds = append(found.rounds, r)
		}
	}
	if found.crowd, err = b.crowd(ctx); err != nil {
		return err
	}
	figures, err := found.figures()
	if err != nil {
		return err
	}
	return report.Write(os.Stdout, out, environment, figures)
}

// The servers of the rounds: steps are longer than a reaction takes, so that one is over before the next is due;
// together they fill what the response-time analysis admits for equal periods. And many, which all ask for a
// raise in every period: a thousand events a second. With a lead of at most a quarter of the lowest budget that of all
// levels is the same, and a job goes just beyond one alarm.
var (
	fewServers  = ramp{servers: 20, periodUs: 200_000, lowUs: 500, stepUs: 150, levels: 26}
	manyServers = ramp{servers: 100, periodUs: 100_000, lowUs: 200, stepUs: 2, levels: 100, leadUs: 50}
)
