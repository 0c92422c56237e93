package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelWorkloadOptimizer is, on a pod, the name of the WorkloadOptimizer of its namespace that governs it, where that one
// has no podSelector.
const LabelWorkloadOptimizer = "workloadoptimizer.kcloud.io/name"

// AnnotationDisabled with value "true" on a WorkloadOptimizer suspends it.
const AnnotationDisabled = Group + "/optimization-disabled"

// WorkloadType is what kind of work the pods do.
// +kubebuilder:validation:Enum=training;serving;inference;batch
type WorkloadType string

// Workload types.
const (
	WorkloadTraining  WorkloadType = "training"
	WorkloadServing   WorkloadType = "serving"
	WorkloadInference WorkloadType = "inference"
	WorkloadBatch     WorkloadType = "batch"
)

// WorkloadResources is what one replica needs.
type WorkloadResources struct {
	// cpu of one replica, for example "16" or "500m".
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) > 0",message="cpu must be above 0"
	CPU resource.Quantity `json:"cpu"`
	// memory of one replica, for example "64Gi".
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) > 0",message="memory must be above 0"
	Memory resource.Quantity `json:"memory"`
	// gpu is the number of GPUs of one replica, of any vendor.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	// +kubebuilder:default=0
	GPU int32 `json:"gpu,omitempty"`
	// npu is the number of NPUs of one replica, of any vendor.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	// +kubebuilder:default=0
	NPU int32 `json:"npu,omitempty"`
}

// CostConstraints bound what the workload costs.
// +kubebuilder:validation:XValidation:rule="!has(self.budgetLimit) || self.budgetLimit >= 24.0 * self.maxCostPerHour",message="budgetLimit must be at least 24 hours at maxCostPerHour"
type CostConstraints struct {
	// maxCostPerHour is the most that all pods together may cost, in USD per hour.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=1000000
	MaxCostPerHour float64 `json:"maxCostPerHour"`
	// preferSpot has pods prefer spot machines.
	// +optional
	PreferSpot bool `json:"preferSpot,omitempty"`
	// budgetLimit is the most that the workload may cost in all, in USD.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	BudgetLimit *float64 `json:"budgetLimit,omitempty"`
}

// PowerConstraints bound what the workload draws.
type PowerConstraints struct {
	// maxPowerUsage is the most that all pods together may draw, in watts.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=10000000
	MaxPowerUsage float64 `json:"maxPowerUsage"`
	// preferGreen has pods prefer machines that run on renewable energy.
	// +optional
	PreferGreen bool `json:"preferGreen,omitempty"`
}

// PlacementAffinity is a preference for nodes with a label.
type PlacementAffinity struct {
	// type is a word for what the preference is for. It changes nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type,omitempty"`
	// key of the label.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Key string `json:"key"`
	// value of the label.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Value string `json:"value"`
	// weight of the preference among all of the pod.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=1
	Weight int32 `json:"weight,omitempty"`
}

// PlacementPolicy says which nodes the pods may and should run on.
type PlacementPolicy struct {
	// nodeSelector is what nodes must have, beside what the pods themselves ask for. Names and values that no label can have make
	// condition Ready False.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// affinity is what nodes should have.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Affinity []PlacementAffinity `json:"affinity,omitempty"`
}

// ScalingMetricType is what replicas are counted by.
// +kubebuilder:validation:Enum=cost;power;latency;cpu;memory;gpu
type ScalingMetricType string

// ScalingMetric is a value that more or fewer replicas are to keep.
type ScalingMetric struct {
	// type of the value.
	Type ScalingMetricType `json:"type"`
	// threshold of the value: cost in percent of maxCostPerHour, power in watts, latency in milliseconds, cpu, memory and gpu in
	// percent of what is requested.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=10000000
	Threshold float64 `json:"threshold"`
}

// AutoScaling bounds the replicas.
// +kubebuilder:validation:XValidation:rule="self.minReplicas <= self.maxReplicas",message="minReplicas must be at most maxReplicas"
type AutoScaling struct {
	// minReplicas is the fewest replicas.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas int32 `json:"minReplicas"`
	// maxReplicas is the most replicas.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas int32 `json:"maxReplicas"`
	// metrics that replicas follow.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	Metrics []ScalingMetric `json:"metrics,omitempty"`
}

// WorkloadOptimizerSpec is what a workload may cost and draw.
// +kubebuilder:validation:XValidation:rule="self.workloadType != 'training' || self.resources.gpu > 0 || self.resources.npu > 0",message="training needs resources.gpu or resources.npu above 0"
type WorkloadOptimizerSpec struct {
	// workloadType is what kind of work the pods do.
	WorkloadType WorkloadType `json:"workloadType"`
	// priority among WorkloadOptimizers, the higher the more important.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Priority int32 `json:"priority,omitempty"`
	// resources of one replica. They say what is looked for while no pod runs; they never change a pod.
	Resources WorkloadResources `json:"resources"`
	// costConstraints bound what the workload costs. Left out: nothing does.
	// +optional
	CostConstraints *CostConstraints `json:"costConstraints,omitempty"`
	// powerConstraints bound what the workload draws. Left out: nothing does.
	// +optional
	PowerConstraints *PowerConstraints `json:"powerConstraints,omitempty"`
	// placementPolicy says which nodes the pods may and should run on.
	// +optional
	PlacementPolicy *PlacementPolicy `json:"placementPolicy,omitempty"`
	// autoScaling bounds the replicas.
	// +optional
	AutoScaling *AutoScaling `json:"autoScaling,omitempty"`
	// podSelector selects the pods of this namespace that are governed. Left out: those with label
	// workloadoptimizer.kcloud.io/name and this object's name.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}

// WorkloadOptimizerPhase is how far a WorkloadOptimizer has come.
// +kubebuilder:validation:Enum=Pending;Optimizing;Optimized;Failed;Suspended
type WorkloadOptimizerPhase string

// Phases.
const (
	// PhasePending: no pod of it runs.
	PhasePending WorkloadOptimizerPhase = "Pending"
	// PhaseOptimizing: pods run, and a constraint is not kept, a price is unknown, or pods are not ready.
	PhaseOptimizing WorkloadOptimizerPhase = "Optimizing"
	// PhaseOptimized: all pods are ready, and all constraints are kept.
	PhaseOptimized WorkloadOptimizerPhase = "Optimized"
	// PhaseFailed: no machine that the NodePools may open takes the pods that wait, or can keep the constraints.
	PhaseFailed WorkloadOptimizerPhase = "Failed"
	// PhaseSuspended: annotation kcloud.io/optimization-disabled is "true".
	PhaseSuspended WorkloadOptimizerPhase = "Suspended"
)

// Conditions of a WorkloadOptimizer.
const (
	// ConditionReady: status tells what the pods cost and draw now.
	ConditionReady = "Ready"
	// ConditionAvailable: a pod is ready.
	ConditionAvailable = "Available"
	// ConditionProgressing: pods wait for a node, or run and are not ready.
	ConditionProgressing = "Progressing"
	// ConditionDegraded: a constraint is broken.
	ConditionDegraded = "Degraded"
	// ConditionCostOptimized: the pods cost what they may.
	ConditionCostOptimized = "CostOptimized"
	// ConditionPowerOptimized: the pods draw what they may.
	ConditionPowerOptimized = "PowerOptimized"
	// ConditionDataQuality: prices and watts of all machines that pods run on are known.
	ConditionDataQuality = "DataQuality"
	// ConditionFeasible: the pods that wait fit some machine that the NodePools may open, and all pods can keep all constraints.
	ConditionFeasible = "Feasible"
)

// WorkloadOptimizerStatus is what the workload costs and draws now.
type WorkloadOptimizerStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is how far it has come.
	// +optional
	Phase WorkloadOptimizerPhase `json:"phase,omitempty"`
	// currentCost is what the pods cost, in USD per hour: of each node's price the share that their requests have of its
	// allocatable resources.
	// +optional
	CurrentCost float64 `json:"currentCost,omitempty"`
	// idleCost is their share of what the pods' nodes cost and no pod requests, in USD per hour.
	// +optional
	IdleCost float64 `json:"idleCost,omitempty"`
	// currentPower is what the pods draw, in watts, modelled from their requests.
	// +optional
	CurrentPower float64 `json:"currentPower,omitempty"`
	// idlePower is their share of what the pods' nodes draw for no pod, in watts.
	// +optional
	IdlePower float64 `json:"idlePower,omitempty"`
	// lowestCost is a bound in USD per hour: machines of NodePools that together have what the same pods request, and run nothing else, cost no less.
	// +optional
	LowestCost float64 `json:"lowestCost,omitempty"`
	// assignedNode is the node that most of the pods run on.
	// +optional
	AssignedNode string `json:"assignedNode,omitempty"`
	// optimizationScore is from 0 (each pod on a machine of its own, or a constraint is broken) to 1 (nothing can be better).
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	OptimizationScore *float64 `json:"optimizationScore,omitempty"`
	// replicas is the number of pods that are not over.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// readyReplicas is the number of pods that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// lastOptimizationTime is when the workload last became Optimized.
	// +optional
	LastOptimizationTime *metav1.Time `json:"lastOptimizationTime,omitempty"`
	// conditions of the workload.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WorkloadOptimizer says what a workload may cost and draw, and tells what it does.
// +kubebuilder:object:root=true
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: it is the value of a label of pods"
// +kubebuilder:resource:scope=Namespaced,shortName={wo,wopt},categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.workloadType`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Cost",type=number,JSONPath=`.status.currentCost`
// +kubebuilder:printcolumn:name="Watts",type=number,JSONPath=`.status.currentPower`
// +kubebuilder:printcolumn:name="Score",type=number,JSONPath=`.status.optimizationScore`
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type WorkloadOptimizer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WorkloadOptimizerSpec `json:"spec"`
	// +optional
	Status WorkloadOptimizerStatus `json:"status,omitempty"`
}

// WorkloadOptimizerList is a list of WorkloadOptimizers.
// +kubebuilder:object:root=true
type WorkloadOptimizerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkloadOptimizer `json:"items"`
}
