// Command lifecycle measures the node lifecycle: how many pods a second the scheduler plans for,
// with and without our decorators, and how long 1,000 pending pods take to be bound on a real
// control plane.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/mainspring-rt/mainspring/test/bench/report"
)

func main() {
	out := flag.String("out", "out/bench/lifecycle.json", "file to write the figures to")
	controller := flag.String("controller", "bin/controller", "controller binary of the end-to-end part")
	rounds := flag.Int("rounds", 3, "rounds per size; the median counts")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *out, *controller, *rounds)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-lifecycle: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, controller string, rounds int) error {
	environment := report.ReadEnvironment()
	endToEnd, err := measureEndToEnd(ctx, controller)
	if err != nil {
		return err
	}
	throughput, err := measureThroughput(ctx, rounds)
	if err != nil {
		return err
	}
	return report.Write(os.Stdout, out, environment, append(throughput, endToEnd...))
}
