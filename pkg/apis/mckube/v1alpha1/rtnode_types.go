package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Levels that every server has; those between them are named in RTServer.levels.
const (
	LevelLow  = "low"
	LevelHigh = "hi"
)

// Conditions of an RTNode.
const (
	// ConditionReady: the agent obeys the spec. Written by the agent.
	ConditionReady = "Ready"
	// ConditionAgentRealtime: the agent's fast path runs with a real-time policy. Written by the agent.
	ConditionAgentRealtime = "AgentRealtime"
	// ConditionDrifted: something else changed what the agent applied. Written by the agent.
	ConditionDrifted = "Drifted"
	// ConditionAgentAlive: the agent's heartbeat keeps changing, here or in its Lease. Written by the controller.
	ConditionAgentAlive = "AgentAlive"
	// ConditionRTPressure: real-time work of the node is late or finds no room. Written by the controller; the last
	// transition to True is when the pressure began, the reason how far its answer has come.
	ConditionRTPressure = "RTPressure"
)

// RTLevel is a named budget between low and high.
type RTLevel struct {
	// name of the level.
	Name string `json:"name"`
	// budgetUs is the budget in microseconds per period.
	BudgetUs int64 `json:"budgetUs"`
}

// RTServer is a container that should run as a real-time server on the node.
type RTServer struct {
	// podUID of the pod.
	PodUID types.UID `json:"podUID"`
	// namespace of the pod.
	Namespace string `json:"namespace"`
	// pod is its name.
	Pod string `json:"pod"`
	// container is the container's name.
	Container string `json:"container"`
	// criticality: Low, Middle or High.
	// +kubebuilder:validation:Enum=Low;Middle;High
	Criticality string `json:"criticality"`
	// periodUs in microseconds.
	// +kubebuilder:validation:Minimum=1
	PeriodUs int64 `json:"periodUs"`
	// deadlineUs in microseconds from the start of the period.
	// +kubebuilder:validation:Minimum=1
	DeadlineUs int64 `json:"deadlineUs"`
	// budgetLowUs is the initial budget in microseconds.
	// +kubebuilder:validation:Minimum=1
	BudgetLowUs int64 `json:"budgetLowUs"`
	// budgetHighUs is the highest budget in microseconds.
	// +kubebuilder:validation:Minimum=1
	BudgetHighUs int64 `json:"budgetHighUs"`
	// levels between them, ascending.
	// +optional
	// +listType=atomic
	Levels []RTLevel `json:"levels,omitempty"`
	// cores is where it runs: numbers of logical CPUs, 0 to 1023.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=1023
	Cores []int32 `json:"cores"`
	// level is the least budget the controller asks for: low, hi or a level's name. The agent may
	// raise it by itself as the plan allows.
	// +optional
	// +kubebuilder:default=low
	Level string `json:"level,omitempty"`
	// mode: Elastic or Reserved.
	// +optional
	// +kubebuilder:default=Elastic
	Mode string `json:"mode,omitempty"`
	// limited is set for a container that was admitted by test T1k: one of a core at a time may be
	// above its low budget.
	// +optional
	Limited bool `json:"limited,omitempty"`
	// overruns of periods after which the agent escalates.
	// +optional
	Overruns int32 `json:"overruns,omitempty"`
	// periods is the length of that window.
	// +optional
	Periods int32 `json:"periods,omitempty"`
	// dwellUs is how long a raised budget is kept at least, in microseconds.
	// +optional
	DwellUs int64 `json:"dwellUs,omitempty"`
}

// RTServerRef names a server of the node.
type RTServerRef struct {
	// podUID of the pod.
	PodUID types.UID `json:"podUID"`
	// container is the container's name.
	Container string `json:"container"`
}

// RTRaise is a server that the agent may raise at once, without asking.
type RTRaise struct {
	RTServerRef `json:",inline"`
	// toUs is the budget up to which it may be raised, in microseconds.
	ToUs int64 `json:"toUs"`
}

// RTSqueeze is a server that gives way when the plan's room is used up.
type RTSqueeze struct {
	RTServerRef `json:",inline"`
	// floorUs is the budget below which it is never squeezed, in microseconds.
	FloorUs int64 `json:"floorUs"`
}

// RTCorePlan says what the agent may do on one core without asking. It was proven before it was
// written: whatever the agent does within it, the budgets promised in a period never exceed the
// core's capacity.
type RTCorePlan struct {
	// core is the number of the logical CPU, 0 to 1023.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1023
	Core int32 `json:"core"`
	// test that proved it: T1, T1k, EDF-VD or AMC-rtb.
	Test string `json:"test"`
	// thresholdPpm is the bandwidth that budgets may reach together, in parts per million of the core, 0 to 1000000.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	ThresholdPpm int64 `json:"thresholdPpm"`
	// maxRaised is how many servers that are limited may be above their low budget at once. 0, as by tests other than T1k, is no bound: they are as any other.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxRaised int32 `json:"maxRaised,omitempty"`
	// raise lists who may be raised, and how far.
	// +optional
	// +listType=atomic
	Raise []RTRaise `json:"raise,omitempty"`
	// squeeze lists who gives way, first to last, and how far.
	// +optional
	// +listType=atomic
	Squeeze []RTSqueeze `json:"squeeze,omitempty"`
}

// RTNodeSpec is what should run on the node. The controller writes it.
type RTNodeSpec struct {
	// servers that should run.
	// +optional
	// +listType=map
	// +listMapKey=podUID
	// +listMapKey=container
	// +kubebuilder:validation:MaxItems=2048
	Servers []RTServer `json:"servers,omitempty"`
	// plan for each core that has servers.
	// +optional
	// +listType=map
	// +listMapKey=core
	// +kubebuilder:validation:MaxItems=1024
	Plan []RTCorePlan `json:"plan,omitempty"`
}

// RTCoreStatus is a core as the agent offers it.
type RTCoreStatus struct {
	// id is the number of the logical CPU.
	ID int32 `json:"id"`
	// numa is its NUMA node.
	// +optional
	NUMA int32 `json:"numa,omitempty"`
	// sibling is the other thread of the core, or -1.
	Sibling int32 `json:"sibling"`
	// capacityPpm is what servers may be promised together, in parts per million of the core.
	CapacityPpm int64 `json:"capacityPpm"`
	// reservedPpm is what the budgets in force add up to.
	// +optional
	ReservedPpm int64 `json:"reservedPpm,omitempty"`
	// escalationReservePpm is kept beyond the capacity for the one container that may be escalated at
	// a time.
	// +optional
	EscalationReservePpm int64 `json:"escalationReservePpm,omitempty"`
}

// RTServerStatus is a server as the agent applied it and read it back.
type RTServerStatus struct {
	// podUID of the pod.
	PodUID types.UID `json:"podUID"`
	// container is the container's name.
	Container string `json:"container"`
	// budgetUs in force, in microseconds per period.
	BudgetUs int64 `json:"budgetUs"`
	// periodUs in force.
	PeriodUs int64 `json:"periodUs"`
	// cores it may run on.
	// +optional
	// +listType=atomic
	Cores []int32 `json:"cores,omitempty"`
	// level in force: low, hi or a level's name.
	Level string `json:"level"`
	// overruns is the number of periods in which the budget was used up with work pending.
	// +optional
	Overruns int64 `json:"overruns,omitempty"`
	// misses is the number of jobs that ended after their deadline.
	// +optional
	Misses int64 `json:"misses,omitempty"`
	// lastOverrunTime is when it last overran.
	// +optional
	LastOverrunTime *metav1.MicroTime `json:"lastOverrunTime,omitempty"`
	// drift is how often something else changed what was applied.
	// +optional
	Drift int64 `json:"drift,omitempty"`
	// realtimeThreads is how many of its threads have a real-time policy, read back from the kernel every second. Where the agent itself
	// has taken the policy from them for the rest of a period, all of them count.
	// +optional
	RealtimeThreads int32 `json:"realtimeThreads,omitempty"`
	// error is why the spec could not be applied; empty when it was.
	// +optional
	Error string `json:"error,omitempty"`
	// escapes says what of the container its budget does not hold, or what is not seen of it, although the spec was applied; empty when
	// all of it is governed.
	// +optional
	Escapes string `json:"escapes,omitempty"`
}

// RTPressure is how busy the node is.
type RTPressure struct {
	// cpuPercent is the CPU utilisation of the node, 0 to 100.
	// +optional
	CPUPercent int32 `json:"cpuPercent,omitempty"`
	// busySince is when the node's CPU became busy; absent while it is not.
	// +optional
	BusySince *metav1.Time `json:"busySince,omitempty"`
	// psi is "some avg10" of /proc/pressure/cpu in hundredths of a percent; absent without PSI.
	// +optional
	PSI *int32 `json:"psi,omitempty"`
}

// CheckpointCapability is what a node can do about the state of containers, as its agent found out.
type CheckpointCapability struct {
	// driver by which it is done: cri (kubelet's checkpoint API, restored by the runtime when a container is created), pod
	// (KEP-5823) or none.
	// +kubebuilder:validation:Enum=cri;pod;none
	Driver string `json:"driver"`
	// checkpoints: the state of a container can be written.
	// +optional
	Checkpoints bool `json:"checkpoints,omitempty"`
	// restores: containers can be made from such a state.
	// +optional
	Restores bool `json:"restores,omitempty"`
	// runtime and its version: containerd 2.3.7.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Runtime string `json:"runtime,omitempty"`
	// criu version.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	CRIU string `json:"criu,omitempty"`
	// kernel release.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Kernel string `json:"kernel,omitempty"`
	// message says why it cannot, where it cannot.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// RTNodeStatus is what the node's agent reports, at most once a second.
type RTNodeStatus struct {
	// observedGeneration is the generation of the spec that was applied.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// heartbeatTime is when the agent wrote this. While it stays true, Lease rtnode-NODE of namespace kube-node-lease is renewed instead.
	// +optional
	HeartbeatTime *metav1.MicroTime `json:"heartbeatTime,omitempty"`
	// agentVersion of the agent.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// backend is how budgets are enforced: hcbs, rtgroup, fifo, deadline, cfs or simulated.
	// +optional
	Backend string `json:"backend,omitempty"`
	// budgetGranularityUs is how far a task ran past its budget when the agent measured it.
	// +optional
	BudgetGranularityUs int64 `json:"budgetGranularityUs,omitempty"`
	// cores that take real-time work, each once. A list of one writer: the API server keeps no record of who owns which field of which entry, which for 20
	// servers is most of what a write costs it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Cores []RTCoreStatus `json:"cores,omitempty"`
	// servers as applied, each once; a list of one writer, as cores.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2048
	Servers []RTServerStatus `json:"servers,omitempty"`
	// pressure of the node.
	// +optional
	Pressure RTPressure `json:"pressure,omitempty,omitzero"`
	// checkpoint is what the node can do about the state of containers. Left out: nothing, or its agent has not looked yet.
	// +optional
	Checkpoint *CheckpointCapability `json:"checkpoint,omitempty"`
	// conditions: Ready, AgentRealtime and Drifted by the agent, AgentAlive and RTPressure by the controller.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RTNode is the real-time side of the Node of the same name: what should run there on which core,
// and what its agent reports.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=rtnodes,shortName=rtn,categories=mainspring
// +kubebuilder:printcolumn:name="Backend",type=string,JSONPath=`.status.backend`
// +kubebuilder:printcolumn:name="Granularity",type=integer,JSONPath=`.status.budgetGranularityUs`
// +kubebuilder:printcolumn:name="CPU%",type=integer,JSONPath=`.status.pressure.cpuPercent`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Alive",type=string,JSONPath=`.status.conditions[?(@.type=="AgentAlive")].status`
// +kubebuilder:printcolumn:name="Pressure",type=string,JSONPath=`.status.conditions[?(@.type=="RTPressure")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RTNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec RTNodeSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status RTNodeStatus `json:"status,omitempty,omitzero"`
}

// RTNodeList is a list of RTNodes.
// +kubebuilder:object:root=true
type RTNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RTNode `json:"items"`
}
