package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the labels of mainspring_inventory_power_operations_total: what a power driver was asked, and what came of it.
const (
	PowerStatus  = "status"
	PowerOn      = "on"
	PowerOff     = "off"
	PowerCut     = "cut"
	PowerRestart = "restart"

	// PowerDone was accepted by the other side. PowerRefused credentials and PowerMisconfigured settings need a person;
	// anything else that PowerFailed is tried again.
	PowerDone          = "done"
	PowerRefused       = "refused"
	PowerMisconfigured = "misconfigured"
	PowerFailed        = "failed"
)

var (
	// PowerOperations counts what power drivers were asked.
	PowerOperations = counter("inventory_power_operations_total", "Calls of the power drivers of machines, by what was asked and what came of it.", "action", "outcome")
	// MachineFailures counts machines that were given up.
	MachineFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "inventory_failures_total", Help: "Times that a machine that was switched on did not become a Ready Node.",
	})
	// MachineJoin is how long machines take to become nodes.
	MachineJoin = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: "inventory_join_seconds", Help: "Time from the claim of a machine until its Node is Ready.",
		Buckets: []float64{5, 10, 20, 30, 60, 120, 180, 300, 600, 1200},
	})
	// Machines is how many machines are in each phase. There are series for phases that a machine has been in.
	Machines = &MachineTally{
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "inventory_machines", Help: "Machines of the inventory, by their phase.",
		}, []string{"phase"}),
		phases: map[string]string{},
	}
)

// MachineTally counts machines by phase. It is safe for concurrent use.
type MachineTally struct {
	gauge  *prometheus.GaugeVec
	lock   sync.Mutex
	phases map[string]string
}

// Set the phase of a machine; empty: it is gone.
func (t *MachineTally) Set(machine, phase string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if before := t.phases[machine]; before != "" {
		t.gauge.WithLabelValues(before).Dec()
	}
	delete(t.phases, machine)
	if phase != "" {
		t.phases[machine] = phase
		t.gauge.WithLabelValues(phase).Inc()
	}
}

// Describe implements prometheus.Collector.
func (t *MachineTally) Describe(to chan<- *prometheus.Desc) { t.gauge.Describe(to) }

// Collect implements prometheus.Collector.
func (t *MachineTally) Collect(to chan<- prometheus.Metric) { t.gauge.Collect(to) }

// zeroInventory makes the series of counters exist.
func zeroInventory() {
	for _, action := range []string{PowerStatus, PowerOn, PowerOff, PowerCut, PowerRestart} {
		for _, outcome := range []string{PowerDone, PowerRefused, PowerMisconfigured, PowerFailed} {
			PowerOperations.WithLabelValues(action, outcome)
		}
	}
}
