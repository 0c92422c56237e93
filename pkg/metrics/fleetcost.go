package metrics

import "github.com/prometheus/client_golang/prometheus"

// A vector without labels has no series while nothing is known.
var (
	// FleetCost is what the machines cost that Karpenter opens and closes.
	FleetCost = fleetGauge("fleet_cost_dollars_per_hour", "What the machines of NodePools cost that are opened and closed as pods need them, in USD per hour. Absent while the price of one is not known.")
	// FleetLowestCost is what no packing of their pods costs less than.
	FleetLowestCost = fleetGauge("fleet_lowest_cost_dollars_per_hour", "What no packing of the pods that run on these machines costs less than, in USD per hour.")
	// FleetPackedCost is what the cheapest packing costs that was found.
	FleetPackedCost = fleetGauge("fleet_packed_cost_dollars_per_hour", "What the cheapest packing of these pods costs that was found, in USD per hour. It knows capacities, prices and what pods require of nodes, and no affinity between pods, spread, volumes or disruption.")

	fleetGauges = []*prometheus.GaugeVec{FleetCost, FleetLowestCost, FleetPackedCost}
)

func fleetGauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: kcloud, Name: name, Help: help}, nil)
}

// ObserveFleetCost sets what the fleet costs, and between which bounds its cheapest packing lies, in USD per hour.
func ObserveFleetCost(cost, lowest, packed float64) {
	for i, value := range []float64{cost, lowest, packed} {
		fleetGauges[i].WithLabelValues().Set(value)
	}
}

// ForgetFleetCost takes the series away.
func ForgetFleetCost() {
	for _, g := range fleetGauges {
		g.Reset()
	}
}
