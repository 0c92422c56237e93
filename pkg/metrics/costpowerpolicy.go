package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	// CostPolicyRate is what the pods of a CostPolicy cost.
	CostPolicyRate = policyGauge("cost_policy_dollars_per_hour", "What the pods of a CostPolicy cost with their share of what is idle on their nodes, in USD per hour.")
	// CostPolicySpend is what they have cost since the policy was made.
	CostPolicySpend = policyGauge("cost_policy_spend_dollars", "What the pods of a CostPolicy have cost since the policy was made, in USD.")
	// CostPolicyMonth is what they have cost this month.
	CostPolicyMonth = policyGauge("cost_policy_month_spend_dollars", "What the pods of a CostPolicy have cost in this calendar month of UTC, in USD.")
	// CostPolicyBudget is how much of the budget is spent.
	CostPolicyBudget = policyGauge("cost_policy_budget_utilization_ratio", "Spent part of budgetLimit or monthlyBudget of a CostPolicy, of the one that is nearer to its end.")
	// CostPolicyViolations is how many limits and thresholds are exceeded.
	CostPolicyViolations = policyGauge("cost_policy_violations", "Limits and thresholds of a CostPolicy that are exceeded.")
	// PowerPolicyPower is what the pods of a PowerPolicy draw.
	PowerPolicyPower = policyGauge("power_policy_watts", "What the pods of a PowerPolicy draw with their share of what is idle on their nodes, modelled.")
	// PowerPolicyEnergy is what they have drawn since the policy was made.
	PowerPolicyEnergy = policyGauge("power_policy_energy_kilowatt_hours", "What the pods of a PowerPolicy have drawn since the policy was made, in kWh.")
	// PowerPolicyMonth is what they have drawn this month.
	PowerPolicyMonth = policyGauge("power_policy_month_energy_kilowatt_hours", "What the pods of a PowerPolicy have drawn in this calendar month of UTC, in kWh.")
	// PowerPolicyUtilization is how much of the limit they draw.
	PowerPolicyUtilization = policyGauge("power_policy_utilization_ratio", "Drawn part of maxPowerUsage of a PowerPolicy.")
	// PowerPolicyViolations is how many limits and thresholds are exceeded.
	PowerPolicyViolations = policyGauge("power_policy_violations", "Limits and thresholds of a PowerPolicy that are exceeded.")

	// CostPolicyForecast is what they are expected to cost this month.
	CostPolicyForecast = policyGauge("cost_policy_month_forecast_dollars", "What the pods of a CostPolicy are expected to cost in this calendar month of UTC, in USD. Absent while less than two days are known.")
	// PowerPolicyForecast is what they are expected to draw this month.
	PowerPolicyForecast = policyGauge("power_policy_month_forecast_kilowatt_hours", "What the pods of a PowerPolicy are expected to draw in this calendar month of UTC, in kWh. Absent while less than two days are known.")

	costPolicyGauges  = []*prometheus.GaugeVec{CostPolicyRate, CostPolicySpend, CostPolicyMonth, CostPolicyBudget, CostPolicyViolations}
	powerPolicyGauges = []*prometheus.GaugeVec{PowerPolicyPower, PowerPolicyEnergy, PowerPolicyMonth, PowerPolicyUtilization, PowerPolicyViolations}
)

func policyGauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: kcloud, Name: name, Help: help}, []string{"policy"})
}

// ObserveCostPolicy sets the gauges of a CostPolicy. utilization is in percent.
func ObserveCostPolicy(name string, rate, spend, month, utilization float64, violations int) {
	observePolicy(costPolicyGauges, name, rate, spend, month, utilization/100, float64(violations))
}

// ObserveCostForecast sets what a CostPolicy expects of the month, in USD; NaN takes the series away.
func ObserveCostForecast(name string, month float64) {
	observeForecast(CostPolicyForecast, name, month)
}

// ForgetCostPolicy takes the series of a CostPolicy away that is gone.
func ForgetCostPolicy(name string) {
	forgetPolicy(costPolicyGauges, name)
	CostPolicyForecast.DeleteLabelValues(name)
}

// ObservePowerPolicy sets the gauges of a PowerPolicy. utilization is in percent.
func ObservePowerPolicy(name string, watts, energy, month, utilization float64, violations int) {
	observePolicy(powerPolicyGauges, name, watts, energy, month, utilization/100, float64(violations))
}

// ObservePowerForecast sets what a PowerPolicy expects of the month, in kWh; NaN takes the series away.
func ObservePowerForecast(name string, month float64) {
	observeForecast(PowerPolicyForecast, name, month)
}

// ForgetPowerPolicy takes the series of a PowerPolicy away that is gone.
func ForgetPowerPolicy(name string) {
	forgetPolicy(powerPolicyGauges, name)
	PowerPolicyForecast.DeleteLabelValues(name)
}

func observeForecast(g *prometheus.GaugeVec, name string, month float64) {
	if math.IsNaN(month) {
		g.DeleteLabelValues(name)
		return
	}
	g.WithLabelValues(name).Set(month)
}

func observePolicy(gauges []*prometheus.GaugeVec, name string, values ...float64) {
	for i, g := range gauges {
		g.WithLabelValues(name).Set(values[i])
	}
}

func forgetPolicy(gauges []*prometheus.GaugeVec, name string) {
	for _, g := range gauges {
		g.DeleteLabelValues(name)
	}
}
