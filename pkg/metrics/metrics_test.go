package metrics_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/mainspring-rt/mainspring/pkg/metrics"
)

// series returns the lines that a scrape shows for a metric.
func series(t *testing.T, registry prometheus.Gatherer, name string) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, name) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func expect(t *testing.T, registry prometheus.Gatherer, name string, want ...string) {
	t.Helper()
	if got := strings.Join(series(t, registry, name), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("%s:\n got %s\nwant %s", name, got, strings.Join(want, "\n"))
	}
}

func TestSeriesOfNodesEndWithThem(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	if err := metrics.Register(registry); err != nil {
		t.Fatal(err)
	}
	if err := metrics.Register(registry); err == nil {
		t.Error("registering twice was accepted")
	}
	container := metrics.Container{Namespace: "default", Pod: "web", Container: "app", Overruns: 3, Misses: 2, Drift: 1}
	metrics.Nodes.Set("a", metrics.Node{Alive: true, GranularityUs: 100, Containers: []metrics.Container{container},
		Cores: []metrics.Core{{ID: 2, Capacity: 900_000, Charged: 400_000, InForce: 300_000}}})
	metrics.Nodes.Set("b", metrics.Node{Containers: []metrics.Container{container}})
	expect(t, registry, "mainspring_core_bandwidth_ratio",
		`mainspring_core_bandwidth_ratio{core="2",kind="capacity",node="a"} 0.9`,
		`mainspring_core_bandwidth_ratio{core="2",kind="charged",node="a"} 0.4`,
		`mainspring_core_bandwidth_ratio{core="2",kind="in-force",node="a"} 0.3`)
	expect(t, registry, "mainspring_budget_granularity_seconds",
		`mainspring_budget_granularity_seconds{node="a"} 0.0001`,
		`mainspring_budget_granularity_seconds{node="b"} 0`)
	expect(t, registry, "mainspring_agent_alive", `mainspring_agent_alive{node="a"} 1`, `mainspring_agent_alive{node="b"} 0`)
	// The pod that two nodes name is served once.
	expect(t, registry, "mainspring_overruns_total", `mainspring_overruns_total{container="app",namespace="default",pod="web"} 3`)
	expect(t, registry, "mainspring_deadline_misses_total", `mainspring_deadline_misses_total{container="app",namespace="default",pod="web"} 2`)
	expect(t, registry, "mainspring_drift_total", `mainspring_drift_total{container="app",namespace="default",pod="web"} 1`)
	metrics.Nodes.Delete("a")
	metrics.Nodes.Delete("b")
	for _, name := range []string{"mainspring_core", "mainspring_budget_granularity_seconds", "mainspring_agent", "mainspring_overruns", "mainspring_deadline", "mainspring_drift"} {
		expect(t, registry, name)
	}
}

func TestClosedSeriesExistFromTheStart(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := metrics.Register(registry); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"mainspring_admission_total": 10, "mainspring_containers_refused": 5, "mainspring_preemptions_total": 2, "mainspring_escalations_total": 2,
		"mainspring_recoveries_total": 1, "mainspring_queue_depth": 1, "mainspring_queue_wait_seconds_count": 1,
	} {
		if got := series(t, registry, name); len(got) != want {
			t.Errorf("%s has %d series, want %d", name, len(got), want)
		}
	}
}
