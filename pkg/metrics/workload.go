package metrics

import "github.com/prometheus/client_golang/prometheus"

// kcloud is the namespace of metrics of the KCloud Workload Optimizer, which keep their names.
const kcloud = "kcloud"

var (
	// WorkloadOptimizations counts how often a workload has become Optimized.
	WorkloadOptimizations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: kcloud, Name: "workload_optimizations_total", Help: "Times that all pods of a workload became ready and kept all constraints.",
	}, workload)
	// WorkloadScore is the score of each workload.
	WorkloadScore = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: kcloud, Name: "optimization_score", Help: "Score of a workload's placement, from 0 to 1; absent where prices are unknown or pods wait.",
	}, workload)
	// WorkloadCost is what each workload costs.
	WorkloadCost = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: kcloud, Name: "workload_cost_dollars_per_hour", Help: "Share of their nodes' price that the pods of a workload request, in USD per hour.",
	}, workload)
	// WorkloadPower is what each workload draws.
	WorkloadPower = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: kcloud, Name: "workload_power_watts", Help: "Modelled power of the pods of a workload.",
	}, workload)

	workload = []string{"namespace", "name"}
)

// ObserveWorkload sets the gauges of a workload; without score that of the score goes.
func ObserveWorkload(namespace, name string, cost, watts float64, score *float64) {
	WorkloadCost.WithLabelValues(namespace, name).Set(cost)
	WorkloadPower.WithLabelValues(namespace, name).Set(watts)
	if score == nil {
		WorkloadScore.DeleteLabelValues(namespace, name)
		return
	}
	WorkloadScore.WithLabelValues(namespace, name).Set(*score)
}

// ForgetWorkload takes the series of a workload away that is gone.
func ForgetWorkload(namespace, name string) {
	for _, gauge := range []*prometheus.GaugeVec{WorkloadCost, WorkloadPower, WorkloadScore} {
		gauge.DeleteLabelValues(namespace, name)
	}
	WorkloadOptimizations.DeleteLabelValues(namespace, name)
}
