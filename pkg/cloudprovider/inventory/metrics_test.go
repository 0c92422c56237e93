package inventory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory/power"
	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// measured is what a collector has for so many of its labels.
func measured(c prometheus.Collector, labels ...string) (count uint64, sum, value float64) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if slices.Equal(values, labels) {
				return m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum(), m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0, 0, 0
}

// operations is how often a driver was asked for something, with what outcome, until now.
func operations(action, outcome string) float64 {
	_, _, n := measured(metrics.PowerOperations, action, outcome)
	return n
}

// inPhase is how many machines are in a phase.
func inPhase(phase string) float64 {
	_, _, n := measured(metrics.Machines, phase)
	return n
}

// failures is how many machines were given up.
func failures() float64 {
	_, _, n := measured(metrics.MachineFailures)
	return n
}

func TestWhatMachinesDoIsMeasured(t *testing.T) {
	w := newWorld(t, machine("gauged-1"), machine("gauged-2"), nodePool("edge"))
	free, inUse := inPhase("Free"), inPhase("InUse")
	w.settle("gauged-1", "gauged-2")
	if got := inPhase("Free") - free; got != 2 {
		t.Errorf("%v machines more are free", got)
	}
	on := operations(metrics.PowerOn, metrics.PowerDone)
	n, seconds, _ := measured(metrics.MachineJoin)
	claim := nodeClaim("a")
	w.mustLaunch(claim)
	w.settle("gauged-1")
	w.pass(40*time.Second, "gauged-1")
	w.join("gauged-1")
	w.settle("gauged-1")
	w.settle("gauged-1")
	if count, sum, _ := measured(metrics.MachineJoin); count != n+1 || sum-seconds != 40 {
		t.Errorf("%d joins more, after %v s", count-n, sum-seconds)
	}
	if got := operations(metrics.PowerOn, metrics.PowerDone) - on; got != 1 {
		t.Errorf("switched on %v times", got)
	}
	if inPhase("InUse") != inUse+1 || inPhase("Free") != free+1 {
		t.Errorf("in use %v, free %v", inPhase("InUse")-inUse, inPhase("Free")-free)
	}
	w.end(claim, "gauged-1")
	for _, name := range []string{"gauged-1", "gauged-2"} {
		if err := w.client.Delete(t.Context(), w.machine(name)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := w.reconcile(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if inPhase("Free") != free || inPhase("Deleting") != 0 {
		t.Errorf("of machines that are gone %v are free", inPhase("Free")-free)
	}
}

func TestPowerOperationsAreMeasured(t *testing.T) {
	for outcome, err := range map[string]error{
		metrics.PowerDone: nil, metrics.PowerFailed: fmt.Errorf("connection refused"),
		metrics.PowerRefused:       fmt.Errorf("%w: 401", power.ErrCredentials),
		metrics.PowerMisconfigured: fmt.Errorf("%w: no Secret", power.ErrConfig),
	} {
		t.Run(outcome, func(t *testing.T) {
			w := newWorld(t, machine("m1"), nodePool("edge"))
			w.board("m1").err = err
			before := operations(metrics.PowerStatus, outcome)
			w.settle("m1")
			if got := operations(metrics.PowerStatus, outcome) - before; got < 1 {
				t.Errorf("asked %v times", got)
			}
		})
	}
	w, claim := running(t, func(m *inventory.Machine) { m.Spec.Availability = v1alpha1.MachineOffered })
	w.board("m1").ignoring = true
	off, cut, given := operations(metrics.PowerOff, metrics.PowerDone), operations(metrics.PowerCut, metrics.PowerDone), failures()
	w.end(claim, "m1")
	if off == operations(metrics.PowerOff, metrics.PowerDone) || cut == operations(metrics.PowerCut, metrics.PowerDone) {
		t.Error("a machine that was switched off, and then cut off, is not measured")
	}
	if failures() != given {
		t.Error("a machine that was in use counts as failed")
	}
}
