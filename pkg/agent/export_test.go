package agent

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/mainspring-rt/mainspring/pkg/agent/pressure"
	"github.com/mainspring-rt/mainspring/pkg/agent/table"
	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/events"
	"github.com/mainspring-rt/mainspring/pkg/host"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// Ledger adds up counters.
type Ledger = ledger

// NewLedger, ReadLedger and ParseLedger make one.
var (
	NewLedger   = newLedger
	ReadLedger  = readLedger
	ParseLedger = parseLedger
)

// Follow adds a report.
func (l *ledger) Follow(r table.Report, reported map[string]v1alpha1.RTServerStatus, keep func(string) bool) *Counted {
	l.follow(r, reported, keep)
	return l.counted(r, time.Time{})
}

// Write keeps it.
func (l *ledger) Write(path string) error { return l.write(path) }

// Memory is the RTNode that is gone by, and InForce what the fast path has.
type (
	Memory  = memory
	InForce = inForce
)

// Has is what the fast path has of an RTNode.
func Has(origin types.UID, generation int64) InForce {
	return inForce{known: true, servers: 1, origin: origin, generation: generation}
}

// Spec is the RTNode to go by now.
func (m *memory) Spec(now *v1alpha1.RTNode, at time.Time, has InForce) (*v1alpha1.RTNode, bool) {
	return m.spec(now, at, has)
}

// View is what a status is made of.
type View struct {
	World    *World
	Applied  *Applied
	Counted  *Counted
	Pressure pressure.State
	Cores    []rt.Core
	Drifted  bool
	Before   []metav1.Condition
	Now      time.Time
}

// Status is the status of a view.
func (v View) Status() v1alpha1.RTNodeStatus {
	return view{
		world: v.World, applied: v.Applied, counted: v.Counted, pressure: v.Pressure, cores: v.Cores, drifted: v.Drifted,
		version: "test", before: v.Before, now: v.Now,
	}.status()
}

// Metrics serves what was counted.
func Metrics(node string, world *World, counted *Counted) prometheus.Collector {
	return &collector{node: node, world: func() *World { return world }, counted: func() *Counted { return counted }}
}

// Happened are the Events about a server between two looks.
func Happened(spec v1alpha1.RTServer, before, now table.ServerReport) []events.Event {
	first := situation{spec: spec, node: "n", report: before, total: Total{Counts: countsOf(before)}}
	return situation{spec: spec, node: "n", report: now, total: Total{Counts: countsOf(now)}, before: first.now()}.happened()
}

// Teller writes Events of what is counted.
type Teller struct{ teller }

// NewTeller of node n.
func NewTeller(api API, world *World, counted func() *Counted, clk clock.WithTicker) *Teller {
	return &Teller{teller{
		api: api, node: "n", world: func() *World { return world }, counted: counted, clock: clk, log: logr.Discard(),
		servers: map[string]*page{}, series: map[string]*corev1.Event{},
	}}
}

// Tell looks once.
func (t *Teller) Tell(ctx context.Context) { t.tell(ctx) }

// Reporter writes the status of a world.
type Reporter struct{ reporter }

// NewReporter of node n, with a heartbeat of 5 s.
func NewReporter(api API, world *World, counted func() *Counted, clk clock.WithTicker) *Reporter {
	return &Reporter{reporter{
		api: api, node: "n", heartbeat: 5 * time.Second, world: func() *World { return world }, counted: counted, clock: clk, log: logr.Discard(),
		applied: func() *Applied { return nil }, pressure: func() pressure.State { return pressure.State{} }, cores: func() []rt.Core { return nil },
	}}
}

// Report looks once.
func (r *Reporter) Report(ctx context.Context) { r.report(ctx) }

// WantedAnnotations of a Node, and whether one that is there is Nearly what is wanted.
var (
	WantedAnnotations = wantedAnnotations
	Nearly            = nearly
)

// Offer compares a machine with a report, as offers does, and passes it on to a driver's update.
func Offer(report table.Report, machine host.Topology, c clock.WithTicker, update func(table.Report) error) []rt.Core {
	o := &offers{
		counted: func() *Counted { return &Counted{Report: report} }, machine: func() (host.Topology, error) { return machine, nil }, clock: c, log: logr.Discard(),
	}
	o.update.Store(&update)
	o.look()
	return o.Cores()
}
