package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/state"
	"github.com/mainspring-rt/mainspring/test/bench/report"
)

const (
	// For so many containers of the cluster each worker holds a reservation before it gives the oldest back.
	outstanding = 40
	// arrivals is how many placements a second are asked for while their time is taken; a cluster of this size
	// that replaces every container in a minute asks for a third of it.
	arrivals = 1000
	// heartbeat is how often each node's RTNode changes while decisions are taken.
	heartbeat = 5 * time.Second
	// attempts is how often a decision is taken again when somebody else was faster.
	attempts = 16
)

// measurePlacement takes decisions on the cluster and on one of a tenth of the size, in turn, so that
// whatever else the machine does hits both alike.
func measurePlacement(ctx context.Context, full size, l load) ([]report.Figure, error) {
	large, err := newBench(full)
	if err != nil {
		return nil, err
	}
	small, err := newBench(full.tenth())
	if err != nil {
		return nil, err
	}
	var big, little rounds
	for round := range l.rounds {
		for b, r := range map[*bench]*rounds{large: &big, small: &little} {
			paced, err := b.round(ctx, l.decisions/4, uint64(round), arrivals)
			if err != nil {
				return nil, err
			}
			found, err := b.round(ctx, l.decisions, uint64(round), 0)
			if err != nil {
				return nil, err
			}
			r.add(paced, found)
			fmt.Fprintf(os.Stderr, "  %v, round %d: p50 %.4f ms, p99 %.4f ms, %.0f/s\n", b.size, round+1, ms(quantile(paced.took, 0.5)), ms(quantile(paced.took, 0.99)), found.rate)
		}
	}
	return append(placementFigures(full, big, little, l), large.questions()...), nil
}

func placementFigures(full size, big, little rounds, l load) []report.Figure {
	how := fmt.Sprintf("find the best core and reserve it, %v; %.0f placements a second (at most %d), as many releases and %d heartbeats; median of %d rounds of %d",
		full, median(big.arrived), arrivals, full.nodes/int(heartbeat.Seconds()), l.rounds, l.decisions/4)
	return []report.Figure{
		{Key: "placement_p50_ms", Value: ms(median(big.p50)), Note: how},
		{Key: "placement_p99_ms", Value: ms(median(big.p99)), Goal: "< 1", Note: "the same"},
		{Key: "placement_max_ms", Value: ms(median(big.max)), Note: "the slowest of a round, median of the rounds"},
		{Key: "decisions_per_s", Value: median(big.rate), Note: fmt.Sprintf("placements as fast as one goroutine per CPU can, each with the release of an older one, under heartbeats; %d a round, %.1f %% found no core", l.decisions, median(big.refused)*100)},
		{Key: "placement_p50_100_nodes_ms", Value: ms(median(little.p50)), Note: "the same on a tenth of the nodes and containers"},
		{Key: "placement_p99_100_nodes_ms", Value: ms(median(little.p99)), Note: "the same on a tenth of the nodes and containers"},
		{Key: "growth_100_to_1000_nodes", Value: ratio(big.p50, little.p50), Goal: "< 2", Note: "p50 at full size / p50 at a tenth, median of the rounds"},
		{Key: "growth_p99_100_to_1000_nodes", Value: ratio(big.p99, little.p99), Goal: "< 2", Note: "p99 at full size / p99 at a tenth, median of the rounds"},
	}
}

func ratio(a, b []time.Duration) float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = float64(a[i]) / float64(b[i])
	}
	return median(out)
}

// rounds are figures of several rounds.
type rounds struct {
	p50, p99, max          []time.Duration
	rate, arrived, refused []float64
}

// add takes times from a round at a given pace, and the rate from one without.
func (r *rounds) add(paced, free finding) {
	r.p50 = append(r.p50, quantile(paced.took, 0.5))
	r.p99 = append(r.p99, quantile(paced.took, 0.99))
	r.max = append(r.max, quantile(paced.took, 1))
	r.arrived = append(r.arrived, paced.rate)
	r.rate = append(r.rate, free.rate)
	r.refused = append(r.refused, float64(free.refused)/float64(len(free.took)))
}

// finding is one round.
type finding struct {
	took    []time.Duration
	rate    float64
	refused int
}

// bench is a cluster on which decisions are taken.
type bench struct {
	size
	store   *state.Store
	rtNodes []*v1alpha1.RTNode
}

func newBench(s size) (*bench, error) {
	w := newWorld(s, 1)
	store, err := state.Build(state.Options{}, w.objects()...)
	if err != nil {
		return nil, err
	}
	return &bench{size: s, store: store, rtNodes: w.rtNodes}, nil
}

// round takes so many decisions, with a worker on every CPU, while all nodes report. A rate of 0 means as
// fast as possible, otherwise decisions per second.
func (b *bench) round(ctx context.Context, decisions int, seed uint64, rate int) (finding, error) {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { b.report(ctx) })
	defer background.Wait()
	defer cancel()
	workers := make([]worker, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	runtime.GC() // what the round before left is not this round's work
	start := time.Now()
	for i := range workers {
		workers[i] = worker{bench: b, name: i, pause: pause(rate, len(workers)), r: rand.New(rand.NewPCG(seed, uint64(i)))}
		wg.Go(func() { workers[i].run(ctx, decisions/len(workers)) })
	}
	wg.Wait()
	wall := time.Since(start)
	out := finding{}
	var errs []error
	for i := range workers {
		out.took = append(out.took, workers[i].took...)
		out.refused += workers[i].refused
		errs = append(errs, workers[i].err)
	}
	out.rate = float64(len(out.took)) / wall.Seconds()
	return out, errors.Join(append(errs, ctx.Err())...)
}

// pause is how long each worker waits from one decision to the next.
func pause(rate, workers int) time.Duration {
	if rate == 0 {
		return 0
	}
	return time.Second * time.Duration(workers) / time.Duration(rate)
}

// report has every node's agent report once per heartbeat, evenly spread.
func (b *bench) report(ctx context.Context) {
	ticker := time.NewTicker(heartbeat / time.Duration(len(b.rtNodes)))
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			n := b.rtNodes[i%len(b.rtNodes)].DeepCopy()
			beat := metav1.NewMicroTime(now)
			n.Status.HeartbeatTime = &beat
			_ = b.store.Update(n) // an RTNode is of a kind it takes
		}
	}
}

// worker takes decisions one after the other.
type worker struct {
	*bench
	name    int
	pause   time.Duration
	r       *rand.Rand
	took    []time.Duration
	refused int
	held    []string
	err     error
}

func (w *worker) run(ctx context.Context, decisions int) {
	defer func() {
		for _, key := range w.held {
			w.store.Release(key)
		}
	}()
	for i := 0; i < decisions && ctx.Err() == nil && w.err == nil; i++ {
		time.Sleep(w.pause)
		server := drawServer(w.r, fmt.Sprintf("%d/%d", w.name, i))
		start := time.Now()
		placed := w.place(server)
		w.took = append(w.took, time.Since(start))
		if !placed {
			w.refused++
			continue
		}
		if w.held = append(w.held, server.ID); len(w.held) > w.containers/outstanding {
			w.store.Release(w.held[0])
			w.held = w.held[1:]
		}
	}
}

// place is an admission decision: the best core, reserved for the server. When somebody else was
// faster, it is taken again.
func (w *worker) place(server rt.Server) bool {
	for range attempts {
		best, gates := w.store.Snapshot().BestCore(server)
		if len(gates) > 0 {
			return false
		}
		err := w.store.Reserve(state.Reservation{Key: server.ID, Node: best.Node, Core: best.Core, Server: server, Until: time.Now().Add(time.Hour)})
		if err == nil {
			return true
		}
		if refused := (&state.RefusedError{}); !errors.As(err, &refused) {
			w.err = err
			return false
		}
	}
	w.err = fmt.Errorf("placing %s: somebody else was faster %d times", server.ID, attempts)
	return false
}

// drawServer is a container: one in ten prefers cores, one in twenty is Limited, one in fifty asks for nearly
// a whole core or more than any has.
func drawServer(r *rand.Rand, id string) rt.Server {
	settings, criticality := drawSettings(r)
	s := rt.Server{ID: id, Period: settings.Period, Low: settings.RuntimeLow, High: settings.RuntimeHi}
	s.Criticality, _ = rt.ParseCriticality(string(criticality)) // it is one of the three
	switch dice := r.IntN(100); {
	case dice < 10:
		s.Preferred = []int{r.IntN(64), r.IntN(64)}
	case dice < 15:
		s.Limited = true
	case dice < 17:
		s.Low = s.Period * (700 + r.Int64N(250)) / 1000
		s.High = s.Low
	}
	return s
}

// questions are the other two that are asked of the whole cluster.
func (b *bench) questions() []report.Figure {
	const asked = 300
	r := rand.New(rand.NewPCG(7, 7))
	snapshot := b.store.Snapshot()
	var breaks, victims []time.Duration
	found := 0
	for i := range asked {
		start := time.Now()
		snapshot.Breaks(b.rtNodes[i%len(b.rtNodes)].Name)
		breaks = append(breaks, time.Since(start))
		server := drawServer(r, "new")
		server.Criticality = rt.High
		start = time.Now()
		if _, ok := snapshot.Victims(server); ok {
			found++
		}
		victims = append(victims, time.Since(start))
	}
	return []report.Figure{
		{Key: "breaks_p99_ms", Value: ms(quantile(breaks, 0.99)), Note: fmt.Sprintf("what breaks without a node; p50 %.3f ms, %d nodes", ms(quantile(breaks, 0.5)), asked)},
		{Key: "victims_p99_ms", Value: ms(quantile(victims, 0.99)), Note: fmt.Sprintf("cheapest victims in the cluster; p50 %.3f ms, %d servers, %d with victims", ms(quantile(victims, 0.5)), asked, found)},
	}
}
