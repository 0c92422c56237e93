package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InterruptionHandling is what happens to pods whose spot machine is taken away.
// +kubebuilder:validation:Enum=terminate;drain;migrate
type InterruptionHandling string

// SpotInstancePolicy bounds the use of spot machines.
type SpotInstancePolicy struct {
	// enabled false keeps the NodePools under the policy from opening spot machines.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
	// maxSpotPercentage is the most spot machines among the machines of the NodePools under the policy, in percent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxSpotPercentage *int32 `json:"maxSpotPercentage,omitempty"`
	// interruptionHandling is stored, and changes nothing: the termination of nodes has one way.
	// +optional
	InterruptionHandling InterruptionHandling `json:"interruptionHandling,omitempty"`
}

// ResourceCostPolicy is the price of a machine that has none: the sum over what it has. It never replaces a price of the cloud provider.
type ResourceCostPolicy struct {
	// cpuCostPerCorePerHour in USD.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	CPUCostPerCorePerHour float64 `json:"cpuCostPerCorePerHour,omitempty"`
	// memoryCostPerGiPerHour in USD.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MemoryCostPerGiPerHour float64 `json:"memoryCostPerGiPerHour,omitempty"`
	// gpuCostPerHour in USD.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	GPUCostPerHour float64 `json:"gpuCostPerHour,omitempty"`
	// npuCostPerHour in USD.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	NPUCostPerHour float64 `json:"npuCostPerHour,omitempty"`
}

// CostAlertType is what an alert compares.
// +kubebuilder:validation:Enum=budget_usage;cost_increase;anomaly
type CostAlertType string

// Types of alerts of a CostPolicy.
const (
	// AlertBudgetUsage compares status.budgetUtilization, in percent.
	AlertBudgetUsage CostAlertType = "budget_usage"
	// AlertCostIncrease compares by how many percent costPerHour is above the mean of the last 24 hours.
	AlertCostIncrease CostAlertType = "cost_increase"
	// AlertAnomaly compares how many standard deviations of the last 24 hours costPerHour is away from their mean.
	AlertAnomaly CostAlertType = "anomaly"
)

// CostAlertThreshold is a value above which a violation is told.
type CostAlertThreshold struct {
	// type is what is compared.
	Type CostAlertType `json:"type"`
	// value above which the alert is told: percent for budget_usage and cost_increase, standard deviations for anomaly.
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

// CostPolicySpec is what pods and machines may cost.
type CostPolicySpec struct {
	// budgetLimit is the most that may be spent in all from when the policy was made, in USD.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=1000000000000
	BudgetLimit *float64 `json:"budgetLimit,omitempty"`
	// monthlyBudget is the most that may be spent in a calendar month of UTC, in USD.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=1000000000000
	MonthlyBudget *float64 `json:"monthlyBudget,omitempty"`
	// costPerHourLimit is the most that may be spent at any time, in USD per hour. The NodePools under the policy open no machine that would
	// exceed it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=1000000000
	CostPerHourLimit *float64 `json:"costPerHourLimit,omitempty"`
	// spotInstancePolicy bounds the use of spot machines.
	// +optional
	SpotInstancePolicy *SpotInstancePolicy `json:"spotInstancePolicy,omitempty"`
	// resourceCostPolicy is the price of machines that have none.
	// +optional
	ResourceCostPolicy *ResourceCostPolicy `json:"resourceCostPolicy,omitempty"`
	// minSavingsPerMove is what each selected pod that repacking moves has to save within a day, or in the rest of its life where that is
	// shorter, in USD. The most counts that a policy of the pod or the controller's flag --repack-min-savings-per-move asks for.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MinSavingsPerMove *float64 `json:"minSavingsPerMove,omitempty"`
	// alertThresholds are values above which a violation is told.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	AlertThresholds []CostAlertThreshold `json:"alertThresholds,omitempty"`

	Selection `json:",inline"`
}

// CostPolicyStatus is what pods and machines cost.
type CostPolicyStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is how the policy stands.
	// +optional
	Phase PolicyPhase `json:"phase,omitempty"`
	// costPerHour is what the pods cost now with their share of what is idle on their nodes, in USD per hour; where the policy is about all
	// pods, what all nodes cost.
	// +optional
	CostPerHour float64 `json:"costPerHour,omitempty"`
	// idleCostPerHour is the part of costPerHour that no pod requests.
	// +optional
	IdleCostPerHour float64 `json:"idleCostPerHour,omitempty"`
	// packing is how far the machines of NodePools are from the cheapest packing of their pods. Policies about all pods
	// have it, where it is known.
	// +optional
	Packing *Packing `json:"packing,omitempty"`
	// currentSpend is what was spent from accrual.from to accrual.until, in USD.
	// +optional
	CurrentSpend float64 `json:"currentSpend,omitempty"`
	// monthlySpend is the part of it in calendar month accrual.month, in USD.
	// +optional
	MonthlySpend float64 `json:"monthlySpend,omitempty"`
	// budgetUtilization is how much of budgetLimit or monthlyBudget is spent, of the one that is nearer to its end, in percent.
	// +optional
	BudgetUtilization float64 `json:"budgetUtilization,omitempty"`
	// forecast is what is expected. It is absent while less than two days are known.
	// +optional
	Forecast *Forecast `json:"forecast,omitempty"`
	// pods that are counted.
	// +optional
	Pods int32 `json:"pods,omitempty"`
	// nodes that they run on.
	// +optional
	Nodes int32 `json:"nodes,omitempty"`
	// spotNodes of them are spot machines.
	// +optional
	SpotNodes int32 `json:"spotNodes,omitempty"`
	// accrual is how the spending was added up.
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

// Packing is what the machines cost that Karpenter opens and closes, and what those of the cheapest packing of their
// pods cost. It knows resources, prices and what pods require of their node, and no affinity between pods, spread,
// volumes, real-time cores or disruption.
type Packing struct {
	// time at which the figures were true.
	Time metav1.Time `json:"time"`
	// pods on these machines, without those of DaemonSets.
	Pods int32 `json:"pods"`
	// costPerHour of the machines in USD.
	CostPerHour float64 `json:"costPerHour"`
	// lowestCostPerHour is what no packing of the pods on machines of NodePools costs less than, in USD.
	LowestCostPerHour float64 `json:"lowestCostPerHour"`
	// packedCostPerHour is what the cheapest packing costs that was found, in USD.
	PackedCostPerHour float64 `json:"packedCostPerHour"`
}

// CostPolicy says what pods and machines may cost, and tells what they do.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=costpolicies,shortName=cp,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="USD/h",type=number,JSONPath=`.status.costPerHour`
// +kubebuilder:printcolumn:name="Lowest",type=number,JSONPath=`.status.packing.lowestCostPerHour`,priority=1
// +kubebuilder:printcolumn:name="Month",type=number,JSONPath=`.status.monthlySpend`
// +kubebuilder:printcolumn:name="Spend",type=number,JSONPath=`.status.currentSpend`
// +kubebuilder:printcolumn:name="Budget%",type=number,JSONPath=`.status.budgetUtilization`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CostPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CostPolicySpec `json:"spec"`
	// +optional
	Status CostPolicyStatus `json:"status,omitempty"`
}

// CostPolicyList is a list of CostPolicies.
// +kubebuilder:object:root=true
type CostPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CostPolicy `json:"items"`
}
