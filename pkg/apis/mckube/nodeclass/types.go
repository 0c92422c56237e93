// Package nodeclass holds the one wire type of group mckube.io that Karpenter itself reads, and that therefore
// has the methods that Karpenter asks of a node class. It is apart from package v1alpha1, so that clients of the
// others need none of what those methods bring along.
//
// +kubebuilder:object:generate=true
// +groupName=mckube.io
// +versionName=v1alpha1
package nodeclass

import (
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Kind of the node class, as NodePools refer to it.
const Kind = "InventoryNodeClass"

// ConditionCapacityAvailable says whether a machine of the class is free. Reasons: MachinesFree, InventoryFull,
// NoMachines.
const ConditionCapacityAvailable = "CapacityAvailable"

// Reasons of ConditionCapacityAvailable.
const (
	// ReasonMachinesFree: a NodeClaim can have a machine.
	ReasonMachinesFree = "MachinesFree"
	// ReasonInventoryFull: no machine is free; the message counts what they do.
	ReasonInventoryFull = "InventoryFull"
	// ReasonNoMachines: the selector selects no machine.
	ReasonNoMachines = "NoMachines"
)

// InventoryNodeClassSpec chooses machines.
type InventoryNodeClassSpec struct {
	// selector chooses InventoryMachines by their own labels (metadata.labels). Left out: all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// InventoryNodeClassStatus counts the machines.
type InventoryNodeClassStatus struct {
	// machines that the selector selects.
	// +optional
	Machines int32 `json:"machines"`
	// free ones among them.
	// +optional
	Free int32 `json:"free"`
	// claimed by NodeClaims.
	// +optional
	Claimed int32 `json:"claimed"`
	// unavailable are neither: quarantined, withheld, joined by hand, or their power driver does not answer.
	// +optional
	Unavailable int32 `json:"unavailable"`
	// machinesHash changes with what one of the machines is to the scheduler: its capacity, class, zone, labels or cores. Karpenter looks for
	// drifted NodeClaims when it does. It has 16 hexadecimal digits, or is empty without machines.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	MachinesHash string `json:"machinesHash,omitempty"`
	// conditions: Ready, CapacityAvailable.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []status.Condition `json:"conditions,omitempty"`
}

// InventoryNodeClass is the machines of the inventory that a NodePool may use.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=inc,categories=mainspring
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Machines",type=integer,JSONPath=`.status.machines`
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.free`
// +kubebuilder:printcolumn:name="Claimed",type=integer,JSONPath=`.status.claimed`
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.unavailable`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type InventoryNodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec InventoryNodeClassSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status InventoryNodeClassStatus `json:"status,omitempty,omitzero"`
}

// InventoryNodeClassList is a list of InventoryNodeClasses.
// +kubebuilder:object:root=true
type InventoryNodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InventoryNodeClass `json:"items"`
}

var _ status.Object = (*InventoryNodeClass)(nil)

// GetConditions returns the conditions, for Karpenter.
func (c *InventoryNodeClass) GetConditions() []status.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions, for Karpenter.
func (c *InventoryNodeClass) SetConditions(conditions []status.Condition) {
	c.Status.Conditions = conditions
}

// StatusConditions are the conditions as Karpenter handles them. Ready is about the class, not about how full
// the inventory is.
func (c *InventoryNodeClass) StatusConditions(opts ...status.ForOption) status.ConditionSet {
	return status.NewReadyConditions().For(c, opts...)
}

// AddToScheme registers the type of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(v1alpha1.SchemeGroupVersion, &InventoryNodeClass{}, &InventoryNodeClassList{})
	return nil
}
