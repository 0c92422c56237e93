package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MachineAvailability says what a machine may be used for.
// +kubebuilder:validation:Enum=Offered;Withheld;OutOfService
type MachineAvailability string

const (
	// MachineOffered means that the machine is given to NodeClaims.
	MachineOffered MachineAvailability = "Offered"
	// MachineWithheld means that the machine is given to no new NodeClaim; the one that has it keeps it.
	MachineWithheld MachineAvailability = "Withheld"
	// MachineOutOfService says that whoever sets it vouches that the machine is off and stays off. It is given to no
	// NodeClaim, its power is not touched, and a NodeClaim that is being deleted is let go of without
	// waiting for the machine to be off.
	MachineOutOfService MachineAvailability = "OutOfService"
)

// CoreLayout is how a machine's logical CPUs are laid out for real-time work. They are numbered as Linux
// numbers them on common boards: first one thread of every core, NUMA node by NUMA node, then the second
// threads in the same order.
// +kubebuilder:validation:XValidation:rule="!has(self.housekeeping) || self.housekeeping.all(c, c < self.numaNodes * self.coresPerNuma * (self.smt ? 2 : 1))",message="housekeeping names a CPU that the layout does not have"
// +kubebuilder:validation:XValidation:rule="!has(self.escalationCores) || self.escalationCores.all(c, c < self.numaNodes * self.coresPerNuma * (self.smt ? 2 : 1))",message="escalationCores names a CPU that the layout does not have"
// +kubebuilder:validation:XValidation:rule="self.escalationReservePpm < self.bandwidthPpm",message="escalationReservePpm must be less than bandwidthPpm"
type CoreLayout struct {
	// numaNodes is the number of NUMA nodes.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:default=1
	NUMANodes int32 `json:"numaNodes,omitempty"`
	// coresPerNuma is the number of physical cores of each NUMA node.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=512
	CoresPerNUMA int32 `json:"coresPerNuma"`
	// smt says that every core has two threads.
	// +kubebuilder:default=false
	SMT bool `json:"smt,omitempty"`
	// housekeeping are the logical CPUs that are kept for the system and take no real-time work.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:Minimum=0
	Housekeeping []int32 `json:"housekeeping,omitempty"`
	// bandwidthPpm is the share of each core that the kernel lets real-time work have, in parts per million.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=950000
	BandwidthPPM int32 `json:"bandwidthPpm,omitempty"`
	// granularityUs is how far a task may run past its budget, in microseconds, as the node's agent measures
	// it (RTNode.status.budgetGranularityUs). Default 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	GranularityUs int32 `json:"granularityUs,omitempty"`
	// escalationReservePpm is what the cores in escalationCores keep, in parts per million, for the one
	// container of a core that may be escalated at a time. With backends hcbs and deadline none is kept, as by their nodes' agents.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +kubebuilder:default=0
	EscalationReservePPM int32 `json:"escalationReservePpm,omitempty"`
	// escalationCores are the logical CPUs that keep the reserve. Left out: all that take real-time work.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:Minimum=0
	EscalationCores []int32 `json:"escalationCores,omitempty"`
	// backend is what the node's agent enforces budgets with, as in RTNode.status.backend.
	// +kubebuilder:validation:Enum=hcbs;rtgroup;fifo;deadline;cfs;simulated
	// +kubebuilder:default=rtgroup
	Backend string `json:"backend,omitempty"`
}

// DeviceWatts is the part of a machine's power that its GPUs and NPUs draw together, in watts.
// +kubebuilder:validation:XValidation:rule="quantity(string(self.idle)).compareTo(quantity('0')) >= 0 && quantity(string(self.max)).compareTo(quantity(string(self.idle))) >= 0",message="idle must be at least 0 watts, and max at least idle"
type DeviceWatts struct {
	// idle is the power without load.
	Idle resource.Quantity `json:"idle"`
	// max is the power under full load.
	Max resource.Quantity `json:"max"`
}

// MachineWatts is what a whole machine draws, in watts.
// +kubebuilder:validation:XValidation:rule="quantity(string(self.idle)).compareTo(quantity('0')) >= 0 && quantity(string(self.max)).compareTo(quantity(string(self.idle))) >= 0",message="idle must be at least 0 watts, and max at least idle"
// +kubebuilder:validation:XValidation:rule="!has(self.devices) || (quantity(string(self.idle)).compareTo(quantity(string(self.devices.idle))) >= 0 && quantity(string(self.max)).sub(quantity(string(self.devices.max))).compareTo(quantity(string(self.idle)).sub(quantity(string(self.devices.idle)))) >= 0)",message="devices must leave the host at least 0 watts without load, and no less under full load"
type MachineWatts struct {
	// idle is the power without load.
	Idle resource.Quantity `json:"idle"`
	// max is the power under full load.
	Max resource.Quantity `json:"max"`
	// devices is the part of both that GPUs and NPUs draw. Left out: the larger load, that of the CPUs or that of the
	// devices, drives the whole machine.
	// +optional
	Devices *DeviceWatts `json:"devices,omitempty"`
}

// InventoryMachineSpec is a machine as its owner knows it.
// +kubebuilder:validation:XValidation:rule="has(self.nodeName) == has(oldSelf.nodeName) && (!has(self.nodeName) || self.nodeName == oldSelf.nodeName)",message="nodeName cannot be changed; create another InventoryMachine"
type InventoryMachineSpec struct {
	// nodeName is the name that the machine's kubelet joins with. Left out: the name of this object. It
	// cannot be changed.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	NodeName string `json:"nodeName,omitempty"`
	// hardwareClass groups machines; it becomes label mckube.io/hardware-class. Machines of one class that
	// are alike in architecture, zone, labels, capacity, reserved and cores are one instance type,
	// <class>-<hash>.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	HardwareClass string `json:"hardwareClass"`
	// architecture of the CPUs: amd64 or arm64.
	// +kubebuilder:validation:Enum=amd64;arm64
	// +kubebuilder:default=amd64
	Architecture string `json:"architecture,omitempty"`
	// zone is where the machine stands, as in label topology.kubernetes.io/zone.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:default=edge
	Zone string `json:"zone,omitempty"`
	// labels that the Node gets, beside those that follow from the other fields. A NodePool that pods select
	// by one of them has to name it in its requirements.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['mckube.io/gpu-model', 'mckube.io/npu-model'] || !k.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|karpenter[.]sh|mckube[.]io)/'))",message="labels of kubernetes.io, k8s.io, karpenter.sh and mckube.io are set by their owners; only mckube.io/gpu-model and mckube.io/npu-model may be given"
	Labels map[string]string `json:"labels,omitempty"`
	// capacity of the machine; cpu and memory must be given. pods defaults to 110.
	// +kubebuilder:validation:XValidation:rule="'cpu' in self && 'memory' in self",message="capacity must name cpu and memory"
	// +kubebuilder:validation:MaxProperties=32
	Capacity corev1.ResourceList `json:"capacity"`
	// reserved is what the system keeps of the capacity (the kubelet's kube-reserved, system-reserved and
	// eviction thresholds together), so that what is planned with is what the Node will have.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Reserved corev1.ResourceList `json:"reserved,omitempty"`
	// cores is the layout of the cores for real-time work. Left out: the machine takes none.
	// +optional
	Cores *CoreLayout `json:"cores,omitempty"`
	// watts is what the machine draws. Left out: unknown.
	// +optional
	Watts *MachineWatts `json:"watts,omitempty"`
	// pricePerHour is what an hour of the running machine costs in USD, its purchase amortised. Left out: 0.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="pricePerHour must not be negative"
	PricePerHour *resource.Quantity `json:"pricePerHour,omitempty"`
	// power is how the machine is switched.
	Power MachinePower `json:"power"`
	// bootTimeout is how long the machine may take from being claimed until its Node is Ready. Default 10m;
	// Karpenter itself gives up after 15m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('14m')",message="bootTimeout must be from 1s to 14m"
	BootTimeout *metav1.Duration `json:"bootTimeout,omitempty"`
	// adoptInto is the NodePool that takes the machine over when its Node has joined without a NodeClaim. Left
	// out: such a machine is left alone, and given to no NodeClaim while that Node is there.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AdoptInto string `json:"adoptInto,omitempty"`
	// availability says what the machine may be used for: Offered, Withheld or OutOfService.
	// +kubebuilder:default=Offered
	Availability MachineAvailability `json:"availability,omitempty"`
}

// MachineStage is how far a NodeClaim's use of a machine has come.
// +kubebuilder:validation:Enum=Starting;InUse;Stopping;Stopped
type MachineStage string

const (
	// StageStarting means that the machine is switched on, and its Node awaited.
	StageStarting MachineStage = "Starting"
	// StageInUse means that its Node has been Ready.
	StageInUse MachineStage = "InUse"
	// StageStopping means that the machine is switched off.
	StageStopping MachineStage = "Stopping"
	// StageStopped means that the machine is off; it is free when the NodeClaim is gone.
	StageStopped MachineStage = "Stopped"
)

// MachineClaim is the use of a machine by one NodeClaim. It is written before anything is done for it, with an
// optimistic lock, and taken away only when the machine is off and the NodeClaim gone.
type MachineClaim struct {
	// nodeClaim is the NodeClaim's name.
	NodeClaim string `json:"nodeClaim"`
	// uid of the NodeClaim.
	UID types.UID `json:"uid"`
	// nodePool of the NodeClaim.
	// +optional
	NodePool string `json:"nodePool,omitempty"`
	// reservation is the reserved offering that the NodeClaim was launched in, as in label mckube.io/reservation-id.
	// +optional
	Reservation string `json:"reservation,omitempty"`
	// adopted says that the Node had joined before.
	// +optional
	Adopted bool `json:"adopted,omitempty"`
	// time of the claim.
	Time metav1.Time `json:"time"`
	// stage that the use is in.
	Stage MachineStage `json:"stage"`
	// stageTime is when the stage began.
	StageTime metav1.Time `json:"stageTime"`
	// found is the power that the machine had before anything was switched for the claim. It is written first, so that
	// a machine that was on by itself is told from one that was switched on.
	// +optional
	Found MachinePowerState `json:"found,omitempty"`
	// attempts is how often the power was switched, or should have been, in this stage.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// lastAttempt is when that was last.
	// +optional
	LastAttempt *metav1.Time `json:"lastAttempt,omitempty"`
}

// MachineReboot is a reboot that was asked of the machine's power driver and not refused.
type MachineReboot struct {
	// id of the operation, from the caller.
	ID string `json:"id"`
	// time at which it was asked for.
	Time metav1.Time `json:"time"`
}

// MachinePowerState is whether a machine is switched on.
// +kubebuilder:validation:Enum=On;Off;Unknown
type MachinePowerState string

// What is known of a machine's power.
const (
	PowerOn      MachinePowerState = "On"
	PowerOff     MachinePowerState = "Off"
	PowerUnknown MachinePowerState = "Unknown"
)

// ConditionMachineAvailable says whether a NodeClaim may have the machine now.
const ConditionMachineAvailable = "Available"

// Reasons of ConditionMachineAvailable.
const (
	// ReasonMachineFree: the machine waits for a NodeClaim.
	ReasonMachineFree = "Free"
	// ReasonMachineClaimed: a NodeClaim has it.
	ReasonMachineClaimed = "Claimed"
	// ReasonMachineQuarantined: it failed before; see status.quarantinedUntil.
	ReasonMachineQuarantined = "Quarantined"
	// ReasonMachineWithheld: spec.availability keeps it back.
	ReasonMachineWithheld = "Withheld"
	// ReasonMachineOutOfService: spec.availability says that it is off.
	ReasonMachineOutOfService = "OutOfService"
	// ReasonMachineJoinedByHand: its Node is there without a NodeClaim, and spec.adoptInto is empty.
	ReasonMachineJoinedByHand = "JoinedByHand"
	// ReasonMachineAdopting: its Node is there without a NodeClaim, and one is being made.
	ReasonMachineAdopting = "Adopting"
	// ReasonMachineNotAdoptable: spec.adoptInto cannot take it; the message says why.
	ReasonMachineNotAdoptable = "NotAdoptable"
	// ReasonMachineDeleting: the InventoryMachine is being deleted.
	ReasonMachineDeleting = "Deleting"
	// ReasonMachinePowerFailed: the power driver does not answer as it should.
	ReasonMachinePowerFailed = "PowerFailed"
	// ReasonMachineInvalid: the spec contradicts itself or another machine's.
	ReasonMachineInvalid = "Invalid"
)

// ConditionMachinePower says whether the power driver answers. Reasons: Answering, CredentialsRefused,
// Misconfigured, Unreachable, PowerStateMissing (it answers, and does not say whether the machine is on).
const ConditionMachinePower = "PowerDriverReady"

// Reasons of ConditionMachinePower.
const (
	ReasonPowerAnswering     = "Answering"
	ReasonCredentialsRefused = "CredentialsRefused"
	ReasonPowerMisconfigured = "Misconfigured"
	ReasonPowerUnreachable   = "Unreachable"
	ReasonPowerStateMissing  = "PowerStateMissing"
)

// FinalizerInventoryMachine keeps an InventoryMachine until nothing uses the machine any more.
const FinalizerInventoryMachine = Group + "/inventory-machine"

// InventoryMachineStatus is what is known of a machine, and the record of its use.
type InventoryMachineStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase sums the status up: Free, Starting, InUse, Stopping, Stopped, or the reason why the machine is not
	// available.
	// +optional
	Phase string `json:"phase,omitempty"`
	// instanceType that the machine is offered as.
	// +optional
	InstanceType string `json:"instanceType,omitempty"`
	// claim is the NodeClaim that has the machine; absent while nobody has.
	// +optional
	Claim *MachineClaim `json:"claim,omitempty"`
	// power is whether the machine was on when it was last asked.
	// +optional
	Power MachinePowerState `json:"power,omitempty"`
	// powerTime is when that was.
	// +optional
	PowerTime *metav1.Time `json:"powerTime,omitempty"`
	// failures is how often in a row the machine did not become a Ready Node.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// quarantinedUntil is when the machine is offered again after a failure.
	// +optional
	QuarantinedUntil *metav1.Time `json:"quarantinedUntil,omitempty"`
	// lastFailure is what the last failure was.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastFailure string `json:"lastFailure,omitempty"`
	// lastReboot is the last reboot that was asked of the power driver and not refused.
	// +optional
	LastReboot *MachineReboot `json:"lastReboot,omitempty"`
	// conditions: Available, PowerDriverReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InventoryMachine is a real machine that stands somewhere, to be switched on for pods and off again
// (`--cloud-provider=inventory`).
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=im,categories=mainspring
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.hardwareClass`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Power",type=string,JSONPath=`.status.power`
// +kubebuilder:printcolumn:name="NodeClaim",type=string,JSONPath=`.status.claim.nodeClaim`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.instanceType`,priority=1
// +kubebuilder:printcolumn:name="Failures",type=integer,JSONPath=`.status.failures`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name becomes a label value: at most 63 characters"
type InventoryMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec InventoryMachineSpec `json:"spec"`
	// +optional
	Status InventoryMachineStatus `json:"status,omitempty,omitzero"`
}

// InventoryMachineList is a list of InventoryMachines.
// +kubebuilder:object:root=true
type InventoryMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InventoryMachine `json:"items"`
}
