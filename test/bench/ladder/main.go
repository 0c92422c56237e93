// Command ladder measures how real-time pressure is answered: a storm, in which a third of the pods of a cluster overrun
// at once, and one story told twice, to Mainspring and to upstream's Karpenter with the rules of the MC-Kube controller.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/mainspring-rt/mainspring/test/bench/report"
)

func main() {
	out := flag.String("out", "out/bench/ladder.json", "file to write the figures to")
	controller := flag.String("controller", "bin/controller", "controller binary")
	agents := flag.String("hollow", "bin/hollow", "binary of the hollow agents")
	stock := flag.String("stock", "", "binary of ./test/bench/ladder/stock; empty: build it")
	pods := flag.Int("storm-pods", 2000, "pods of the storm, in hundreds; 20 of them fill a node; 0: no storm")
	story := flag.Bool("story", true, "tell the story twice")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, programs{*controller, *agents, *stock}, *out, *pods, *story)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-ladder: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, p programs, out string, pods int, story bool) error {
	environment := report.ReadEnvironment()
	if err := register(); err != nil {
		return err
	}
	var figures []report.Figure
	if story {
		told, err := tellTwice(ctx, p)
		if err != nil {
			return err
		}
		figures = append(figures, told...)
	}
	if pods > 0 {
		f, err := in(ctx, p, ours, func(w *world) (stormFigures, error) { return storm(ctx, w, pods) })
		if f.measured { // or there is nothing to say, and zeros would look like goals that were met
			figures = append(figures, stormReport(f, pods)...)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("the storm: %w", err), report.Write(os.Stdout, out, environment, figures))
		}
	}
	if err := report.Write(os.Stdout, out, environment, figures); err != nil {
		return err
	}
	goals, err := missed(figures)
	if err == nil && len(goals) > 0 {
		err = errors.New("goals were missed: " + strings.Join(goals, "; "))
	}
	return err
}

// in does something in a world that ends with it.
func in[T any](ctx context.Context, p programs, make func(context.Context, programs) (*world, error), do func(*world) (T, error)) (T, error) {
	w, err := make(ctx, p)
	if err != nil {
		var none T
		return none, err
	}
	result, err := do(w)
	return result, errors.Join(err, w.close())
}

// tellTwice tells the story to stock Karpenter and to ours, one after the other.
func tellTwice(ctx context.Context, p programs) ([]report.Figure, error) {
	theirs, err := in(ctx, p, stock, func(w *world) (outcome, error) { return compare(ctx, w) })
	if err != nil {
		return nil, fmt.Errorf("the story with stock Karpenter: %w", err)
	}
	mine, err := in(ctx, p, ours, func(w *world) (outcome, error) { return compare(ctx, w) })
	if err != nil {
		return nil, fmt.Errorf("the story with Mainspring: %w", err)
	}
	return append(storyReport("ours", mine), storyReport("stock", theirs)...), nil
}

func storyReport(who string, o outcome) []report.Figure {
	note := fmt.Sprintf("the same story of %s, %s", storyLength, map[string]string{
		"ours": "Mainspring", "stock": "upstream's Karpenter with its kwok provider, and MC-Kube's rules looked at each second",
	}[who])
	goal := map[string]string{"ours": "0", "stock": ""}[who]
	all, _ := replicas(plant())
	return []report.Figure{
		{Key: who + "_served", Value: float64(o.served), Goal: fmt.Sprintf(">= %d", all), Note: "containers that ever had a budget; who is not served misses nothing"},
		{Key: who + "_unserved_s", Value: o.unserved.Seconds(), Note: "for how long containers had no budget, from the first Deployment on, added up"},
		{Key: who + "_unserved_high_s", Value: o.unservedHigh.Seconds(), Note: "those of criticality High"},
		{Key: who + "_overruns", Value: float64(o.overruns), Note: "periods in which a budget was used up with work pending"},
		{Key: who + "_misses", Value: float64(o.misses), Note: "jobs after their deadline; " + note},
		{Key: who + "_misses_high", Value: float64(o.missesHigh), Goal: goal, Note: "those of criticality High"},
		{Key: who + "_pressures", Value: float64(o.pressures), Note: "times that a node was tainted for real-time pressure"},
		{Key: who + "_actions", Value: float64(o.actions), Note: "actions of the queue that are over; MC-Kube has none"},
		{Key: who + "_evictions", Value: float64(o.evictions), Note: "pods that were told to go through the Eviction API"},
		{Key: who + "_nodes", Value: float64(o.nodes), Note: "most at once"},
		{Key: who + "_usd", Value: o.usd, Note: "price of the nodes, summed over time"},
	}
}

func stormReport(f stormFigures, pods int) []report.Figure {
	f.violations, f.repeats = append(f.violations, f.rush.violations...), append(f.repeats, f.rush.repeats...)
	for _, broken := range append(slices.Clone(f.violations), f.repeats...) {
		fmt.Fprintln(os.Stderr, broken)
	}
	note := fmt.Sprintf("%d pods on %d nodes, a third overruns at once; %d nodes under pressure at once", pods, f.nodesBefore, f.peak)
	if f.converged == 0 {
		f.converged, note = stormLimit, note+"; it did NOT settle"
	}
	if f.calmed == 0 {
		f.calmed = stormLimit
	}
	figures := []report.Figure{
		{Key: "decisions_per_s", Value: float64(f.actions) / f.converged.Seconds(), Note: "actions that are over, by converge_s; " + note},
		{Key: "converge_s", Value: f.converged.Seconds(), Note: "from the first overrun until none follows and no action waits or runs"},
		{Key: "calm_s", Value: f.calmed.Seconds(), Note: "until no node is tainted or under pressure either"},
		{Key: "disruptions", Value: float64(f.disruptions), Note: "nodes that Karpenter chose for disruption"},
		{Key: "budget_violations", Value: float64(len(f.violations)), Goal: "0", Note: "of budgets, limits and cores, on every version of every object"},
		{Key: "repeat_moves", Value: float64(len(f.repeats)), Goal: "0", Note: "of one pod or container for one cause; the last resort has its own"},
		{Key: "storm_pressures", Value: float64(f.pressures), Note: "times that a node was tainted for real-time pressure"},
		{Key: "storm_pressures_returned", Value: float64(f.returned + f.rush.returned), Goal: "0", Note: "those of nodes that had been tainted before in the storm, or in the rush"},
		{Key: "storm_evictions", Value: float64(f.evictions), Note: "pods that were told to go"},
		{Key: "storm_nodes", Value: float64(f.nodes), Note: "most at once"},
		{Key: "storm_high_pending_s", Value: f.pendingHigh.Seconds(), Note: "the longest that a pod of criticality High had no node"},
		{Key: "storm_high_coreless_s", Value: f.corelessHigh.Seconds(), Note: "the longest that one had no budget in force on a core, looked at each second"},
		{Key: "storm_high_beyond_opening_s", Value: f.beyondHigh.Seconds(), Goal: beyondGoal, Note: fmt.Sprintf("by how much that was longer than it took to open the node that it came to, or, where that was there, the fastest of %d", f.opened)},
		{Key: "storm_unserved_high_s", Value: f.unservedHigh.Seconds(), Note: "for how long containers of criticality High had no budget, added up"},
	}
	if f.rushed {
		figures = append(figures, rushReport(f.rush, pods)...)
	}
	return figures
}

func rushReport(o outcome, pods int) []report.Figure {
	return []report.Figure{
		{Key: "rush_high_coreless_s", Value: o.corelessHigh.Seconds(), Note: fmt.Sprintf("the same of all pods of criticality High, %d of which come to full nodes when the storm is over", rush(pods).replicas)},
		{Key: "rush_high_beyond_opening_s", Value: o.beyondHigh.Seconds(), Goal: beyondGoal, Note: fmt.Sprintf("by how much that was longer than it took to open their nodes, or the fastest of %d", o.opened)},
		{Key: "rush_evictions", Value: float64(o.evictions), Note: "pods that were told to go for them"},
		{Key: "rush_nodes", Value: float64(o.nodes), Note: "most at once"},
	}
}

// beyondGoal is how long a pod may wait beside the opening of a node: until it is known that none has room, the provisioner has its batch, the
// scheduler has looked again and the agent has given the budget.
const beyondGoal = "<= 15"
