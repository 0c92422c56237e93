package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GreenEnergyPolicy is stored, and changes nothing: no source says which machine runs on what.
type GreenEnergyPolicy struct {
	// enabled turns the policy on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// minGreenEnergyPercentage is the least share of renewable energy, in percent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MinGreenEnergyPercentage float64 `json:"minGreenEnergyPercentage,omitempty"`
	// carbonFootprintTarget is the most CO2 that may be emitted, in kg per hour.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	CarbonFootprintTarget *float64 `json:"carbonFootprintTarget,omitempty"`
}

// PowerBudgetAllocation is how workloads share maxPowerUsage.
// +kubebuilder:validation:Enum=equal;priority_based;workload_based
type PowerBudgetAllocation string

// PowerSchedulingPolicy is when machines may be opened.
type PowerSchedulingPolicy struct {
	// powerAwareScheduling is stored, and changes nothing.
	// +optional
	PowerAwareScheduling bool `json:"powerAwareScheduling,omitempty"`
	// peakPowerAvoidance keeps the NodePools under the policy from opening machines within peakPowerHours.
	// +optional
	PeakPowerAvoidance bool `json:"peakPowerAvoidance,omitempty"`
	// peakPowerHours are parts of a day in UTC, for example "09:00-18:00". One that ends before it begins goes on the next day.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`
	// +listType=atomic
	PeakPowerHours []string `json:"peakPowerHours,omitempty"`
	// powerBudgetAllocation is stored, and changes nothing.
	// +optional
	PowerBudgetAllocation PowerBudgetAllocation `json:"powerBudgetAllocation,omitempty"`
}

// PowerAlertType is what an alert compares.
// +kubebuilder:validation:Enum=power_usage;power_increase;anomaly
type PowerAlertType string

// Types of alerts of a PowerPolicy.
const (
	// AlertPowerUsage compares status.powerUtilization, in percent.
	AlertPowerUsage PowerAlertType = "power_usage"
	// AlertPowerIncrease compares by how many percent currentPower is above the mean of the last 24 hours.
	AlertPowerIncrease PowerAlertType = "power_increase"
	// AlertPowerAnomaly compares how many standard deviations of the last 24 hours currentPower is away from their mean.
	AlertPowerAnomaly PowerAlertType = "anomaly"
)

// PowerAlertThreshold is a value above which a violation is told.
type PowerAlertThreshold struct {
	// type is what is compared.
	Type PowerAlertType `json:"type"`
	// value above which the alert is told: percent for power_usage and power_increase, standard deviations for anomaly.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=1000000
	Value float64 `json:"value"`
	// severity of the alert.
	// +optional
	// +kubebuilder:default=warning
	Severity AlertSeverity `json:"severity,omitempty"`
	// action that is asked for. Only notify is carried out: the others are told, and change nothing.
	// +optional
	// +kubebuilder:default=notify
	Action AlertAction `json:"action,omitempty"`
}

// PowerPolicySpec is what pods and machines may draw.
// +kubebuilder:validation:XValidation:rule="!has(self.powerSchedulingPolicy) || !has(self.powerSchedulingPolicy.peakPowerAvoidance) || !self.powerSchedulingPolicy.peakPowerAvoidance || (has(self.powerSchedulingPolicy.peakPowerHours) && size(self.powerSchedulingPolicy.peakPowerHours) > 0)",message="powerSchedulingPolicy.peakPowerAvoidance needs powerSchedulingPolicy.peakPowerHours"
type PowerPolicySpec struct {
	// maxPowerUsage is the most that may be drawn at any time, in watts. The NodePools under the policy open no machine that would exceed it
	// when all their machines are loaded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=1000000000
	MaxPowerUsage *float64 `json:"maxPowerUsage,omitempty"`
	// powerEfficiencyTarget is the least share of the power that is drawn for pods and not by what is idle, in percent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PowerEfficiencyTarget *float64 `json:"powerEfficiencyTarget,omitempty"`
	// greenEnergyPolicy is stored, and changes nothing.
	// +optional
	GreenEnergyPolicy *GreenEnergyPolicy `json:"greenEnergyPolicy,omitempty"`
	// powerSchedulingPolicy is when machines may be opened.
	// +optional
	PowerSchedulingPolicy *PowerSchedulingPolicy `json:"powerSchedulingPolicy,omitempty"`
	// powerAlertThresholds are values above which a violation is told.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	PowerAlertThresholds []PowerAlertThreshold `json:"powerAlertThresholds,omitempty"`

	Selection `json:",inline"`
}

// PowerPolicyStatus is what pods and machines draw.
type PowerPolicyStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is how the policy stands.
	// +optional
	Phase PolicyPhase `json:"phase,omitempty"`
	// currentPower is what the pods draw now with their share of what is idle on their nodes, in watts; where the policy is about all pods,
	// what all nodes draw.
	// +optional
	CurrentPower float64 `json:"currentPower,omitempty"`
	// idlePower is the part of currentPower that is drawn for no pod.
	// +optional
	IdlePower float64 `json:"idlePower,omitempty"`
	// powerUtilization is currentPower in percent of maxPowerUsage.
	// +optional
	PowerUtilization float64 `json:"powerUtilization,omitempty"`
	// powerEfficiency is the share of currentPower that is drawn for pods, in percent.
	// +optional
	PowerEfficiency float64 `json:"powerEfficiency,omitempty"`
	// currentEnergy is what was drawn from accrual.from to accrual.until, in kWh.
	// +optional
	CurrentEnergy float64 `json:"currentEnergy,omitempty"`
	// monthlyEnergy is the part of it in calendar month accrual.month, in kWh.
	// +optional
	MonthlyEnergy float64 `json:"monthlyEnergy,omitempty"`
	// forecast is what is expected. It is absent while less than two days are known.
	// +optional
	Forecast *Forecast `json:"forecast,omitempty"`
	// pods that are counted.
	// +optional
	Pods int32 `json:"pods,omitempty"`
	// nodes that they run on.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// accrual is how the energy was added up.
	// +optional
	Accrual *Accrual `json:"accrual,omitempty"`
	// violations are the limits and thresholds that are exceeded.
	// +optional
	// +listType=atomic
	Violations []Violation `json:"violations,omitempty"`
	// conditions of the policy.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PowerPolicy says what pods and machines may draw, and tells what they do.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=powerpolicies,shortName=pp,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Watts",type=number,JSONPath=`.status.currentPower`
// +kubebuilder:printcolumn:name="Limit%",type=number,JSONPath=`.status.powerUtilization`
// +kubebuilder:printcolumn:name="Month-kWh",type=number,JSONPath=`.status.monthlyEnergy`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PowerPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PowerPolicySpec `json:"spec"`
	// +optional
	Status PowerPolicyStatus `json:"status,omitempty"`
}

// PowerPolicyList is a list of PowerPolicies.
// +kubebuilder:object:root=true
type PowerPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PowerPolicy `json:"items"`
}
