package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
	"github.com/mainspring-rt/mainspring/pkg/test/promises"
)

// outcome is what a story cost.
type outcome struct {
	tally
	evictions int
	nodes     int // most at once
	usd       float64
	// unserved is for how long containers that should have had a budget had none, all added up; unservedHigh those of
	// criticality High.
	unserved, unservedHigh time.Duration
	pressures              int // taints that nodes were given for real-time pressure
	returned               int // those of nodes that had been given it before
	// pendingHigh is the longest that a pod of criticality High waited for a node, corelessHigh for a budget on a core.
	pendingHigh, corelessHigh time.Duration
	// beyondHigh is by how much one was without a core for longer than it takes to open a node, and opened how many nodes were.
	beyondHigh  time.Duration
	opened      int
	disruptions int
	violations  []string // promises about budgets and cores that were broken
	repeats     []string // moves of the same thing for the same cause
	actions     int      // that are over
}

// record watches a story from its beginning.
type record struct {
	recorder *history.Recorder
	machines *catalogue.Catalogue
	wanted   []workload
	cancel   context.CancelFunc
	done     chan struct{}

	mu                     sync.Mutex
	unserved, unservedHigh time.Duration
	nodes                  int
	usd                    float64
	pending, coreless      waits
}

func newRecord(ctx context.Context, c client.WithWatch, wanted []workload) (*record, error) {
	machines, err := catalogue.Parse("catalogue.yaml", machines)
	if err != nil {
		return nil, err
	}
	recorder, err := history.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	r := &record{recorder: recorder, machines: machines, wanted: wanted, done: make(chan struct{})}
	r.pending.begun, r.coreless.begun = time.Now(), time.Now()
	ctx, r.cancel = context.WithCancel(ctx)
	go r.sample(ctx)
	return r, nil
}

func (r *record) stop() {
	r.cancel()
	<-r.done
	r.recorder.Stop()
}

// sample adds up once a second what machines cost, and how long critical pods wait for nodes and cores.
func (r *record) sample(ctx context.Context) {
	defer close(r.done)
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := time.Now()
			r.look(now, now.Sub(last))
			last = now
		}
	}
}

// look reads from the record: lists of thousands each second would be a load of their own.
func (r *record) look(now time.Time, passed time.Duration) {
	nodes, rtNodes := history.Live[*corev1.Node](r.recorder), history.Live[*v1alpha1.RTNode](r.recorder)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes = max(r.nodes, len(nodes))
	all, high := replicas(r.wanted)
	served, servedHigh := servedBy(rtNodes)
	r.unserved += passed * time.Duration(max(0, all-served))
	r.unservedHigh += passed * time.Duration(max(0, high-servedHigh))
	for _, node := range nodes {
		if machine, ok := r.machines.Lookup(node.Labels[corev1.LabelInstanceTypeStable]); ok {
			r.usd += machine.Price.OnDemand * passed.Hours()
		}
	}
	cores, names := onCores(rtNodes), critical(r.wanted)
	for _, pod := range history.Live[*corev1.Pod](r.recorder) {
		if !slices.Contains(names, pod.Labels[test.Label]) {
			continue
		}
		r.pending.see(pod, pod.Spec.NodeName == "" && !ending(pod), now)
		r.coreless.see(pod, !cores[pod.UID] && !ending(pod), now)
	}
}

// servedBy are the containers that have a budget, and those of criticality High.
func servedBy(nodes []*v1alpha1.RTNode) (all, high int) {
	for _, node := range nodes {
		critical := map[types.UID]bool{}
		for _, server := range node.Spec.Servers {
			critical[server.PodUID] = server.Criticality == string(mcoperatorv1.CriticalityHigh)
		}
		for _, server := range node.Status.Servers {
			if server.BudgetUs == 0 {
				continue
			}
			all++
			if critical[server.PodUID] {
				high++
			}
		}
	}
	return all, high
}

// outcome is that until now.
func (r *record) outcome(ctx context.Context) (outcome, error) {
	if err := r.recorder.Sync(ctx); err != nil {
		return outcome{}, err
	}
	if gaps := r.recorder.Gaps(); len(gaps) > 0 {
		return outcome{}, fmt.Errorf("the record has gaps: %v", gaps)
	}
	h := r.recorder.History()
	opened := openings(h.Versions())
	o := outcome{disruptions: len(h.Disrupted()), opened: len(opened)}
	o.tally = tallyOf(h.Versions())
	o.evictions = evictions(h)
	o.pressures, o.returned = pressures(h.Versions())
	for _, broken := range promises.Broken(h) {
		if strings.Contains(broken, "was moved for") {
			o.repeats = append(o.repeats, broken)
		} else {
			o.violations = append(o.violations, broken)
		}
	}
	for _, action := range h.Last().Actions {
		if action.Status.Phase != "Waiting" && action.Status.Phase != "Running" {
			o.actions++
		}
	}
	if most, _ := h.MostDisrupting("edge"); most > 1 {
		o.violations = append(o.violations, fmt.Sprintf("%d nodes were disrupted at once, the budget is 1", most))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o.nodes, o.usd, o.unserved, o.unservedHigh = r.nodes, r.usd, r.unserved, r.unservedHigh
	o.pendingHigh, o.corelessHigh, o.beyondHigh = r.pending.longest(), r.coreless.longest(), r.coreless.beyond(opened)
	return o, nil
}

// tally is what agents have reported of all containers, the largest counts of each.
type tally struct {
	served                       int // containers that had a budget at some time
	misses, missesHigh, overruns int64
}

func tallyOf(versions []history.Version) tally {
	type key struct {
		pod       types.UID
		container string
	}
	most, critical := map[key]v1alpha1.RTServerStatus{}, map[types.UID]bool{}
	for _, v := range versions {
		node, ok := v.Object.(*v1alpha1.RTNode)
		if !ok {
			continue
		}
		for _, server := range node.Spec.Servers {
			critical[server.PodUID] = critical[server.PodUID] || server.Criticality == "High"
		}
		for _, server := range node.Status.Servers {
			k := key{server.PodUID, server.Container}
			m := most[k]
			m.BudgetUs, m.Misses, m.Overruns = max(m.BudgetUs, server.BudgetUs), max(m.Misses, server.Misses), max(m.Overruns, server.Overruns)
			most[k] = m
		}
	}
	var t tally
	for k, m := range most {
		if m.BudgetUs > 0 {
			t.served++
		}
		t.misses += m.Misses
		t.overruns += m.Overruns
		if critical[k.pod] {
			t.missesHigh += m.Misses
		}
	}
	return t
}

// pressures counts how often a node was given the taint of real-time pressure, and how often one that had been given it before.
func pressures(versions []history.Version) (count, returned int) {
	tainted, before := map[string]bool{}, map[types.UID]bool{}
	for _, v := range versions {
		node, ok := v.Object.(*corev1.Node)
		if !ok {
			continue
		}
		now := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == mcoperatorv1.TaintPressure })
		if now && !tainted[node.Name] {
			count++
			if before[node.UID] {
				returned++
			}
			before[node.UID] = true
		}
		tainted[node.Name] = now
	}
	return count, returned
}

// evictions counts the pods that were told to go through the Eviction API.
func evictions(h history.History) int {
	gone := map[types.UID]bool{}
	for _, v := range h.Versions() {
		pod, ok := v.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI" {
				gone[pod.UID] = true
			}
		}
	}
	return len(gone)
}
