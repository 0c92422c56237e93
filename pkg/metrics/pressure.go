package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainspring-rt/mainspring/pkg/orchestration/rules"
)

// Values of the label source of mainspring_rt_pressure_episodes_total; those of the label stage of
// mainspring_rt_pressure_nodes are these and the stages of the way back.
var (
	PressureSources = []string{"NoCoreForHigh", "DeadlineMisses", "OverrunsAtHighBudget", "BusyWithoutRoom"}
	PressureStages  = []string{"Eased", "Recovering", "Lifting"}
)

var (
	// PressureNodes is how many nodes are under real-time pressure, or on the way back.
	PressureNodes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "rt_pressure_nodes", Help: "Nodes under real-time pressure, by its source, or on the way back from it, by the stage.",
	}, []string{"stage"})
	// PressureUnanswered is how many of them no action would help.
	PressureUnanswered = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "rt_pressure_unanswered_nodes", Help: "Nodes under real-time pressure for which no action is left that would help.",
	}, nil)
	// PressureEpisodes counts pressures that began.
	PressureEpisodes = counter("rt_pressure_episodes_total", "Times that a node came under real-time pressure, by its source.", "source")
	// PressureAnswers counts actions that were asked for.
	PressureAnswers = counter("rt_pressure_answers_total", "Actions asked for against real-time pressure.", "kind")
	// PressureReturns counts containers that went back to the cores of their claims.
	PressureReturns = counter("rt_pressure_returns_total", "Containers that went back to the cores of their claims after a pressure.")
	// PressureSeconds is how long pressures lasted.
	PressureSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: "rt_pressure_seconds", Help: "Time from the beginning of a real-time pressure until nobody suffered.",
		Buckets: []float64{5, 10, 20, 30, 60, 120, 300, 600, 1800},
	}, nil)
)

// zeroPressure makes the series exist.
func zeroPressure() {
	for _, source := range PressureSources {
		PressureNodes.WithLabelValues(source)
		PressureEpisodes.WithLabelValues(source)
	}
	for _, stage := range PressureStages {
		PressureNodes.WithLabelValues(stage)
	}
	for _, kind := range rules.Kinds {
		PressureAnswers.WithLabelValues(string(kind))
	}
	PressureUnanswered.WithLabelValues()
	PressureReturns.WithLabelValues()
	PressureSeconds.WithLabelValues()
}
