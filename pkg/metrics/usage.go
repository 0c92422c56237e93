package metrics

import "github.com/prometheus/client_golang/prometheus"

// ResultOK is the value of the label result for what has succeeded.
const ResultOK = "ok"

// Values of the label state of mainspring_usage_source_nodes.
const (
	StateKnown   = "known"
	StateUnknown = "unknown"
)

// SinkInflux is the value of the label sink for InfluxDB.
const SinkInflux = "influxdb"

// Values of the label result of mainspring_sink_points_total.
const (
	// PointWritten is one that is stored, PointRefused one that the sink will never take.
	PointWritten = "written"
	PointRefused = "refused"
	// PointOverflow is one that was dropped because too many waited, PointInvalid one that cannot be written at all.
	PointOverflow = "overflow"
	PointInvalid  = "invalid"
)

// Values of the label decision of mainspring_resource_pressure_decisions_total.
const (
	// DecisionMigrate is a PodMigration that was created, DecisionReport one that would have been.
	DecisionMigrate = "migrate"
	DecisionReport  = "report"
	// DecisionNoTarget is a pod that no node takes, DecisionNoVictim a node of which no pod may go.
	DecisionNoTarget = "no-target"
	DecisionNoVictim = "no-victim"
)

var (
	// UsageReads counts questions to the source of nodes' usage, by what became of them.
	UsageReads = counter("usage_source_reads_total", "Questions to the source of nodes' usage: ok, or what kind of error.", "source", "result")
	// UsageNodes is of how many nodes the usage is known.
	UsageNodes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "usage_source_nodes", Help: "Nodes whose usage is known, and those of which it is unknown because the reading is missing, too old or no number.",
	}, []string{"source", "state"})
	// NodeUsage is how much of a node's CPU and memory is in use.
	NodeUsage = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "resource_usage_ratio", Help: "How much of a node's CPU or memory is in use, as resource pressure is judged by. Not there while unknown.",
	}, []string{"node", "resource"})
	// ResourcePressed tells of each node whether it is under resource pressure.
	ResourcePressed = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "resource_pressure", Help: "1 for a node under resource pressure, 0 for one that is not.",
	}, []string{"node"})
	// ResourceDecisions counts what was decided about pods of nodes under resource pressure.
	ResourceDecisions = counter("resource_pressure_decisions_total", "Pods of nodes under resource pressure that are migrated, would be (report), or find no node, and nodes of which no pod may go.", "decision")
	// SinkPoints counts points that were handed to a sink.
	SinkPoints = counter("sink_points_total", "Points that were handed to a sink, by what became of them.", "sink", "result")
	// SinkFailures counts attempts to write that failed and are repeated.
	SinkFailures = counter("sink_failures_total", "Attempts to write to a sink that failed and are repeated.", "sink")
	// SinkBuffered is how many points wait to be written.
	SinkBuffered = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "sink_buffered_points", Help: "Points that wait to be written to a sink.",
	}, []string{"sink"})
)

// ForgetNode ends the series of a node's resource usage.
func ForgetNode(node string) {
	labels := prometheus.Labels{"node": node}
	NodeUsage.DeletePartialMatch(labels)
	ResourcePressed.DeletePartialMatch(labels)
}

// zeroUsage makes the series exist that do not belong to a node or a source.
func zeroUsage() {
	for _, decision := range []string{DecisionMigrate, DecisionReport, DecisionNoTarget, DecisionNoVictim} {
		ResourceDecisions.WithLabelValues(decision)
	}
	for _, result := range []string{PointWritten, PointRefused, PointOverflow, PointInvalid} {
		SinkPoints.WithLabelValues(SinkInflux, result)
	}
	SinkFailures.WithLabelValues(SinkInflux)
	SinkBuffered.WithLabelValues(SinkInflux)
}
