// Command admission measures real-time admission on a large cluster: how long it takes to find and
// reserve a core while the cluster changes, what the state costs in memory, how soon it is there
// after a restart, and how long a pod's webhook takes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mainspring-rt/mainspring/test/bench/report"
)

// size is how large the cluster is.
type size struct{ nodes, cores, containers int }

func (s size) String() string {
	return fmt.Sprintf("%d nodes x %d cores, %d containers", s.nodes, s.cores, s.containers)
}

// tenth is the same density on a tenth of the nodes.
func (s size) tenth() size { return size{s.nodes / 10, s.cores, s.containers / 10} }

func main() {
	out := flag.String("out", "out/bench/admission.json", "file to write the figures to")
	rounds := flag.Int("rounds", 5, "rounds of placements; the median counts")
	decisions := flag.Int("decisions", 20000, "placements per round")
	requests := flag.Int("requests", 2000, "webhook requests per round")
	parts := flag.String("parts", "placement,memory,webhook,rebuild", "what to measure; rebuild fills an API server first, which takes minutes")
	full := size{}
	flag.IntVar(&full.nodes, "nodes", 1000, "nodes")
	flag.IntVar(&full.cores, "cores", 64, "cores of a node")
	flag.IntVar(&full.containers, "containers", 20000, "real-time containers")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *out, strings.Split(*parts, ","), full, load{rounds: *rounds, decisions: *decisions, requests: *requests})
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-admission: %v\n", err)
		os.Exit(1)
	}
}

// load is how much is measured.
type load struct{ rounds, decisions, requests int }

// part measures one side of admission.
type part func(context.Context, size, load) ([]report.Figure, error)

func run(ctx context.Context, out string, parts []string, full size, l load) error {
	known := map[string]part{"placement": measurePlacement, "memory": measureMemory, "webhook": measureWebhook, "rebuild": measureRebuild}
	log.SetLogger(logr.Discard())
	environment := report.ReadEnvironment()
	var figures []report.Figure
	for _, name := range parts {
		measure, ok := known[name]
		if !ok {
			return fmt.Errorf("--parts names %q; want some of placement, memory, webhook, rebuild", name)
		}
		found, err := measure(ctx, full, l)
		if err != nil {
			return err
		}
		figures = append(figures, found...)
	}
	return report.Write(os.Stdout, out, environment, figures)
}
