package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FaultType is what goes wrong in the simulated cloud.
// +kubebuilder:validation:Enum=Shortage;SpotInterruption;SlowRegistration;FailedRegistration;NodeFailure
type FaultType string

const (
	// FaultShortage makes matching offerings unavailable. With a count they stay on offer and that
	// many launches are refused with an insufficient-capacity error.
	FaultShortage FaultType = "Shortage"
	// FaultSpotInterruption gives matching spot machines notice, has them drained, and takes them
	// away when the notice ends.
	FaultSpotInterruption FaultType = "SpotInterruption"
	// FaultSlowRegistration makes matching machines join later.
	FaultSlowRegistration FaultType = "SlowRegistration"
	// FaultFailedRegistration keeps matching machines from joining.
	FaultFailedRegistration FaultType = "FailedRegistration"
	// FaultNodeFailure breaks matching Nodes.
	FaultNodeFailure FaultType = "NodeFailure"
)

// ConditionActive says whether a fault still strikes. Reasons: Striking, Exhausted, Expired.
const ConditionActive = "Active"

// Reasons of ConditionActive.
const (
	// ReasonStriking: the fault applies to everything it selects.
	ReasonStriking = "Striking"
	// ReasonExhausted: the fault has struck as often as spec.count allows.
	ReasonExhausted = "Exhausted"
	// ReasonExpired: spec.duration has passed.
	ReasonExpired = "Expired"
)

// MaxAffected bounds status.affected and spec.count.
const MaxAffected = 1000

// FaultSelector chooses what a fault strikes. A field that is left out selects everything; fields
// are combined by AND, the values of one field by OR.
type FaultSelector struct {
	// nodePools: names of NodePools.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	NodePools []string `json:"nodePools,omitempty"`
	// instanceTypes: names of instance types, as in label node.kubernetes.io/instance-type.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	InstanceTypes []string `json:"instanceTypes,omitempty"`
	// zones: as in label topology.kubernetes.io/zone.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Zones []string `json:"zones,omitempty"`
	// capacityTypes: as in label karpenter.sh/capacity-type.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=spot;on-demand;reserved
	CapacityTypes []string `json:"capacityTypes,omitempty"`
	// nodeClaims: names of NodeClaims. Not for Shortage, which strikes machines that are not there yet.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	NodeClaims []string `json:"nodeClaims,omitempty"`
}

// SimulatedFaultSpec is a fault to inject into the simulated cloud.
// +kubebuilder:validation:XValidation:rule="!has(self.notice) || self.type == 'SpotInterruption'",message="notice is only for type SpotInterruption"
// +kubebuilder:validation:XValidation:rule="!has(self.delay) || self.type in ['SlowRegistration', 'FailedRegistration']",message="delay is only for types SlowRegistration and FailedRegistration"
// +kubebuilder:validation:XValidation:rule="self.type != 'SlowRegistration' || has(self.delay)",message="type SlowRegistration needs a delay: how much later machines join"
// +kubebuilder:validation:XValidation:rule="!has(self.condition) || self.type == 'NodeFailure'",message="condition is only for type NodeFailure"
// +kubebuilder:validation:XValidation:rule="self.type != 'SpotInterruption' || !has(self.selector) || !has(self.selector.capacityTypes) || self.selector.capacityTypes.all(c, c == 'spot')",message="type SpotInterruption strikes spot machines only: selector.capacityTypes may hold nothing but spot"
// +kubebuilder:validation:XValidation:rule="self.type != 'Shortage' || !has(self.selector) || !has(self.selector.nodeClaims)",message="type Shortage strikes offerings, not machines: use selector.nodePools, instanceTypes, zones or capacityTypes"
type SimulatedFaultSpec struct {
	// type is what goes wrong. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="type cannot be changed; create another SimulatedFault"
	Type FaultType `json:"type"`
	// selector chooses what the fault strikes; left out, everything.
	// +optional
	Selector FaultSelector `json:"selector,omitempty,omitzero"`
	// count is how many NodeClaims the fault strikes at most, over its whole life and exactly once
	// each. Left out: 1 for SpotInterruption and NodeFailure, no bound for the other types.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Count *int32 `json:"count,omitempty"`
	// notice, for SpotInterruption, is the time between the interruption notice and the end of the
	// machine. Default 2m, as on EC2.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8760h')",message="notice must be at most 8760h"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Notice *metav1.Duration `json:"notice,omitempty"`
	// delay, for SlowRegistration, is added to the node class's registration delay. For
	// FailedRegistration it is the time from launch after which the machine dies and its NodeClaim is
	// deleted; left out, the machine hangs until Karpenter's registration timeout.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8760h')",message="delay must be at most 8760h"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Delay *metav1.Duration `json:"delay,omitempty"`
	// duration is how long the fault lasts from its creation. Left out: until it is deleted. When a
	// NodeFailure ends, the Nodes it broke that are still there recover.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('8760h')",message="duration must be at most 8760h"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Duration *metav1.Duration `json:"duration,omitempty"`
	// condition, for NodeFailure, is the type of a Node condition that becomes True, for example
	// KWOKUnhealthy (repaired by replacement) or KWOKRebootRequired (repaired by a reboot). Left out:
	// the kubelet stops, and the Node becomes Ready=Unknown when its lease runs out.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9]*$`
	// +kubebuilder:validation:XValidation:rule="self != 'Ready'",message="condition Ready belongs to the kubelet: leave condition out to stop the kubelet"
	Condition string `json:"condition,omitempty"`
}

// AffectedNodeClaim is one NodeClaim that a fault has struck.
type AffectedNodeClaim struct {
	// name of the NodeClaim.
	Name string `json:"name"`
	// uid of the NodeClaim; a later one of the same name is another.
	UID types.UID `json:"uid"`
	// time of the decision to strike it. The entry is written before the fault acts.
	Time metav1.Time `json:"time"`
	// applied says that the fault has acted on it.
	// +optional
	Applied bool `json:"applied,omitempty"`
}

// SimulatedFaultStatus is what a fault has done so far.
type SimulatedFaultStatus struct {
	// conditions: Active.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// affected NodeClaims, in the order in which they were struck. A Shortage without count, and
	// registration faults without count, keep no list.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=1000
	Affected []AffectedNodeClaim `json:"affected,omitempty"`
	// affectedCount is the length of affected.
	// +optional
	AffectedCount int32 `json:"affectedCount,omitempty"`
}

// SimulatedFault injects a fault into the simulated cloud (`--cloud-provider=simulated`); under any
// other provider it does nothing.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=simf,categories=mainspring
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].reason`
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=`.spec.count`
// +kubebuilder:printcolumn:name="Affected",type=integer,JSONPath=`.status.affectedCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SimulatedFault struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SimulatedFaultSpec `json:"spec"`
	// +optional
	Status SimulatedFaultStatus `json:"status,omitempty,omitzero"`
}

// SimulatedFaultList is a list of SimulatedFaults.
// +kubebuilder:object:root=true
type SimulatedFaultList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SimulatedFault `json:"items"`
}
