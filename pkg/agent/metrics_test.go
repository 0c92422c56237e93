package agent_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainspring-rt/mainspring/pkg/agent"
)

// Of each container it is told whether its fault is latched, and whether its budget holds it as a whole.
func TestContainersThatMisbehaveAreInTheMetrics(t *testing.T) {
	t.Parallel()
	v := wellView(t)
	v.Counted.Report.Servers[0].Escapes = "3 threads are elsewhere"
	v.Counted.Report.Servers[1].Fault = true
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(agent.Metrics("n", v.World, v.Counted))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums, series := map[string]float64{}, map[string]int{}
	for _, f := range families {
		for _, m := range f.Metric {
			sums[f.GetName()] += m.GetGauge().GetValue()
			series[f.GetName()]++
		}
	}
	for _, name := range []string{"mainspring_container_escapes", "mainspring_container_fault"} {
		if sums[name] != 1 || series[name] != len(v.World.RTNode.Spec.Servers) {
			t.Errorf("%s: %d series, of which %v are 1; want one of each server, and one", name, series[name], sums[name])
		}
	}
}
