package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FinalizerAction keeps an RTAction until nothing of it is under way.
const FinalizerAction = Group + "/action"

// LabelActionKey is, on an RTAction, what all attempts at the same have in common.
const LabelActionKey = Group + "/action-key"

// ProgressElsewhere is the entry of an action's progress that says which target had no room for the pod, of one that was undone only for that.
const ProgressElsewhere = "elsewhere"

// ActionKind is what an action does.
// +kubebuilder:validation:Enum=Rearrange;Migrate;Preempt;OpenNode;ReplaceNode
type ActionKind string

// ActionPhase is how far an action has come.
// +kubebuilder:validation:Enum=Waiting;Running;RollingBack;Succeeded;Failed;RolledBack;Refused;Withdrawn;Expired
type ActionPhase string

// ActionBeneficiary is the object for whom an action is done.
type ActionBeneficiary struct {
	// kind of the object: Pod, Node, NodePool or McKube.
	// +kubebuilder:validation:Enum=Pod;Node;NodePool;McKube
	Kind string `json:"kind"`
	// namespace of the object; empty for kinds without one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the object; a later one of the same name is another. Left out: whatever has the name.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// criticality decides on the order of actions. Default Low.
	// +optional
	// +kubebuilder:validation:Enum=Low;Middle;High
	// +kubebuilder:default=Low
	Criticality string `json:"criticality,omitempty"`
}

// ActionPod is a pod that an action moves or evicts.
type ActionPod struct {
	// namespace of the pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name of the pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the pod; a later one of the same name is another.
	UID types.UID `json:"uid"`
}

// ActionMove is a container that goes to another core of its node.
type ActionMove struct {
	// podUID is the uid of its pod.
	PodUID types.UID `json:"podUID"`
	// container of the pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container"`
	// core that it goes to, as the node numbers them.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Core int32 `json:"core"`
}

// ActionKey names something that actions use.
type ActionKey struct {
	// resource: Pod (named by its uid), Node, Namespace, Cluster (without a name), PodBudget (a PodDisruptionBudget, as
	// namespace/name) or PoolBudget (a NodePool).
	// +kubebuilder:validation:Enum=Pod;Node;Namespace;Cluster;PodBudget;PoolBudget
	Resource string `json:"resource"`
	// name of it.
	// +optional
	// +kubebuilder:validation:MaxLength=320
	Name string `json:"name,omitempty"`
}

// ActionUse is how much of something an action uses.
type ActionUse struct {
	ActionKey `json:",inline"`
	// amount of its capacity. 0 or left out: all of it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Amount int32 `json:"amount,omitempty"`
}

// RTActionSpec is what is to be done, for whom and why. It cannot be changed: delete the object to withdraw the
// action.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an action cannot be changed; delete it to withdraw it, and create another"
// +kubebuilder:validation:XValidation:rule="self.kind in ['OpenNode'] || has(self.node) || has(self.pods)",message="an action of this kind needs a node or pods that it is done to"
// +kubebuilder:validation:XValidation:rule="self.kind != 'Migrate' && self.kind != 'Preempt' || has(self.pods)",message="kinds Migrate and Preempt need the pods that they move"
// +kubebuilder:validation:XValidation:rule="self.kind != 'ReplaceNode' && self.kind != 'Rearrange' || has(self.node)",message="kinds ReplaceNode and Rearrange need a node"
// +kubebuilder:validation:XValidation:rule="!has(self.nodePool) || self.kind == 'ReplaceNode' || self.kind == 'OpenNode'",message="nodePool is only for kinds OpenNode and ReplaceNode"
// +kubebuilder:validation:XValidation:rule="!has(self.moves) || self.kind == 'Rearrange'",message="moves is only for kind Rearrange"
// +kubebuilder:validation:XValidation:rule="!has(self.displaces) || self.kind == 'ReplaceNode'",message="displaces is only for kind ReplaceNode"
// +kubebuilder:validation:XValidation:rule="!has(self.targetNode) || self.kind == 'Migrate'",message="targetNode is only for kind Migrate"
type RTActionSpec struct {
	// kind is what is done: Rearrange (squeeze containers of a node, or move them to other cores of it), Migrate (move a
	// pod to another node), Preempt (evict less critical pods), OpenNode, ReplaceNode.
	Kind ActionKind `json:"kind"`
	// reason is why, one PascalCase word.
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]{0,62}$`
	Reason string `json:"reason"`
	// message is why, in words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// cause names the pressure that the action answers. No pod is moved twice for one cause.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Cause string `json:"cause"`
	// attempt counts those at the same thing for the same cause, whichever node the pods were to go to, from 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	Attempt int32 `json:"attempt,omitempty"`
	// tries counts those of them up to this one that were not kept from beginning by a disruption of their node, from 1: the rest after it grows with that.
	// Left out: as attempt.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Tries int32 `json:"tries,omitempty"`
	// beneficiary is for whom it is done.
	Beneficiary ActionBeneficiary `json:"beneficiary"`
	// pods that it moves or evicts.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	Pods []ActionPod `json:"pods,omitempty"`
	// node that it is done to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// targetNode is where pods go.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TargetNode string `json:"targetNode,omitempty"`
	// nodePool is that of the node that is opened or replaced.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodePool string `json:"nodePool,omitempty"`
	// moves are the containers of the node that go to other cores of it. Each is made where every core then passes the
	// admission test.
	// +optional
	// +listType=map
	// +listMapKey=podUID
	// +listMapKey=container
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Moves []ActionMove `json:"moves,omitempty"`
	// displaces are the pods with real-time containers that have to leave the node with it. Whoever replaces the node moves them; until then
	// others may.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=200
	Displaces []ActionPod `json:"displaces,omitempty"`
	// beside: another pod serves before one of pods goes, so PodDisruptionBudgets are not charged for it. Left out: none does.
	// +optional
	Beside bool `json:"beside,omitempty"`
	// uses is what else nobody may have meanwhile, beside what follows from the fields above: its pods, its nodes, places
	// under the limits, PodDisruptionBudgets and the NodePool's budget.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Uses []ActionUse `json:"uses,omitempty"`
	// since is when it was asked for; age raises an action in the order. Left out: the creation of the object.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// startBy is until when it is of use to begin. Left out: always.
	// +optional
	StartBy *metav1.MicroTime `json:"startBy,omitempty"`
	// timeout is how long it may run, and how long undoing it may take.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('24h')",message="timeout must be more than 0s and at most 24h: what runs must end"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Timeout metav1.Duration `json:"timeout"`
}

// RTActionStatus is how far the action has come. It is written before what it permits is done.
type RTActionStatus struct {
	// phase: Waiting; Running and RollingBack, which hold what the action uses; and, for good, Succeeded, Failed (neither
	// finished nor undone), RolledBack, Refused, Withdrawn, Expired.
	// +optional
	// +kubebuilder:default=Waiting
	Phase ActionPhase `json:"phase,omitempty"`
	// phaseTime is when it came into its phase.
	// +optional
	PhaseTime *metav1.MicroTime `json:"phaseTime,omitempty"`
	// waitingFor is what a waiting action waits for, one PascalCase word; of one that has expired, what it last waited for.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	WaitingFor string `json:"waitingFor,omitempty"`
	// message says in words why it is in its phase, or what it waits for.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// lastError is what the last step failed with; it is tried again.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastError string `json:"lastError,omitempty"`
	// spent is what the world itself accounts for by now, such as a PodDisruptionBudget after the eviction.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Spent []ActionKey `json:"spent,omitempty"`
	// unwanted: who asked for it no longer does.
	// +optional
	Unwanted bool `json:"unwanted,omitempty"`
	// progress is what whoever does the action keeps between its steps.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Progress map[string]string `json:"progress,omitempty"`
	// term grows whenever a controller takes the action over: what an earlier one still writes is then refused.
	// +optional
	Term int64 `json:"term,omitempty"`
}

// RTAction is something that is done to pods and nodes, or waits for its turn. Deleting one withdraws it: it goes
// once it is undone.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=rta,categories=mainspring
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="For",type=string,JSONPath=`.spec.beneficiary.name`
// +kubebuilder:printcolumn:name="Criticality",type=string,JSONPath=`.spec.beneficiary.criticality`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Waiting for",type=string,JSONPath=`.status.waitingFor`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
type RTAction struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RTActionSpec `json:"spec"`
	// +optional
	// +kubebuilder:default={phase: Waiting}
	Status RTActionStatus `json:"status,omitempty,omitzero"`
}

// RTActionList is a list of RTActions.
// +kubebuilder:object:root=true
type RTActionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RTAction `json:"items"`
}
