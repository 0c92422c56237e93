// Command migration measures what moving pods costs: how long it takes to decide, how long a pod and its workload are away, and
// how many requests the controller makes, for each strategy; and what a drain that evicts the same pods costs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/test/bench/report"
	"github.com/mainspring-rt/mainspring/test/bench/stats"
)

// bench is what is run, and with what.
type bench struct {
	controller, hollow, out string
	nodes, pods             int
	checkpoint              bool
}

func main() {
	b := bench{}
	flag.StringVar(&b.out, "out", "out/bench/migration.json", "file to write the figures to")
	flag.StringVar(&b.controller, "controller", "bin/controller", "controller binary")
	flag.StringVar(&b.hollow, "hollow", "bin/hollow", "binary of the hollow agents")
	flag.IntVar(&b.nodes, "nodes", 100, "simulated nodes")
	flag.IntVar(&b.pods, "pods", 200, "pods that are moved at once in each round, at most two for each node")
	flag.BoolVar(&b.checkpoint, "checkpoint", true, "move pods with their memory between two real nodes, too (root)")
	flag.Parse()
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := b.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-migration: %v\n", err)
		os.Exit(1)
	}
}

func (b bench) validate() error {
	switch {
	case b.nodes < 2 || b.nodes > 1000:
		return fmt.Errorf("--nodes %d: want 2 to 1000", b.nodes)
	case b.pods < 1 || b.pods > 2*b.nodes:
		return fmt.Errorf("--pods %d: want 1 to %d, two for each node", b.pods, 2*b.nodes)
	}
	return nil
}

func (b bench) run(ctx context.Context) error {
	if err := b.validate(); err != nil {
		return err
	}
	environment := report.ReadEnvironment()
	figures, err := b.simulated(ctx)
	if err != nil {
		return err
	}
	if b.checkpoint {
		real, err := checkpoint(ctx)
		if err != nil {
			return err
		}
		figures = append(figures, real...)
	}
	return report.Write(os.Stdout, b.out, environment, figures)
}

// simulated moves pods on simulated nodes, all at once.
func (b bench) simulated(ctx context.Context) (figures []report.Figure, err error) {
	w, err := open(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.settle(ctx, b.nodes, b.pods); err != nil {
		return nil, err
	}
	for _, r := range rounds() {
		measured, err := w.measure(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("round %s: %w", r.name, err)
		}
		figures = append(figures, measured.figures(r)...)
	}
	return figures, nil
}

// round is one way to move all pods at once.
type round struct {
	name string
	// strategy; empty: the pod is evicted, as a drain does it.
	strategy v1alpha1.MigrationStrategy
}

// rounds in their order. The last one needs the eviction gate out of the way.
func rounds() []round {
	return []round{{"surge", v1alpha1.StrategySurge}, {"restart", v1alpha1.StrategyRestart}, {"evict", ""}}
}

// figures of a round. Keys without the name of a round are those of the surge, which is what is done by default.
func (m measured) figures(r round) []report.Figure {
	away, whole, decided := stats.Of(m.unavailable), stats.Of(m.wholes), stats.Of(m.decisions)
	list := []report.Figure{
		{Key: "unavailable_p50_s_" + r.name, Value: away.Quantile(0.5), Note: "for how long no pod of a workload of one was ready"},
		{Key: "unavailable_max_s_" + r.name, Value: away.Max()},
		{Key: "end_to_end_p50_s_" + r.name, Value: whole.Quantile(0.5), Note: m.endNote(r)},
		{Key: "end_to_end_max_s_" + r.name, Value: whole.Max()},
		{Key: "moved_" + r.name, Value: float64(m.moved), Goal: fmt.Sprint(m.asked), Note: "pods that run on another node afterwards"},
	}
	if r.strategy == "" {
		return append(list, report.Figure{
			Key: "api_calls_per_eviction", Value: m.calls,
			Note: "the same of a pod that is only evicted: what the pod in its place takes, the status of its McKube above all",
		})
	}
	list = append(list, report.Figure{
		Key: "api_calls_per_migration_" + r.name, Value: m.calls, Goal: "< 25",
		Note: "requests of the controller but watches and leases, by the API server's audit log, less what it asks when nothing is to be done",
	})
	if r.strategy != v1alpha1.StrategySurge {
		return list
	}
	return append(list,
		report.Figure{Key: "api_calls_per_migration", Value: m.calls, Goal: "< 25", Note: "those of surge"},
		report.Figure{Key: "decision_p50_ms", Value: 1000 * decided.Quantile(0.5), Note: "from the creation of the PodMigration until it says that it is admitted"},
		report.Figure{Key: "decision_p99_ms", Value: 1000 * decided.Quantile(0.99), Note: fmt.Sprintf("%d asked for at once", m.asked)},
		report.Figure{Key: "concurrent", Value: float64(m.concurrent), Note: "migrations under way at once, most"},
	)
}

func (m measured) endNote(r round) string {
	if r.strategy == "" {
		return "from the eviction until the pod in its place is ready"
	}
	return "from the creation of the PodMigration until it is over"
}
