package v1

// LabelRT marks the pods of real-time workloads; its value is the user's own.
const LabelRT = "sdv.com"

// Annotations of pods, written by Mainspring and readable as the MC-Kube controller wrote them. For a
// pod with one governed container they hold the value; for several, a comma list container=value.
const (
	// AnnotationPeriod is rtSettings.period in microseconds.
	AnnotationPeriod = "mckube.io/rt-period"
	// AnnotationRuntimeLow is rtSettings.runtime_low in microseconds.
	AnnotationRuntimeLow = "mckube.io/rt-runtime-low"
	// AnnotationRuntimeHi is rtSettings.runtime_hi in microseconds.
	AnnotationRuntimeHi = "mckube.io/rt-runtime-hi"
	// AnnotationCurrent is the level in force: low, hi or a level's name.
	AnnotationCurrent = "mckube.io/rt-current"
	// AnnotationCore is the preferred core set at first, then the core that was given.
	AnnotationCore = "mckube.io/rt-core"
	// AnnotationPending is "true" until the containers are on their cores.
	AnnotationPending = "mckube.io/rt-pending"
	// AnnotationConfigured is "true" once the agent has read back what was asked for.
	AnnotationConfigured = "mckube.io/rt-configured"
	// AnnotationPreempting is the plan, in JSON, by which the controller makes room for a pending pod.
	AnnotationPreempting = "mckube.io/preempting"
	// AnnotationPreemptionRest says how many such plans for a pod were in vain, one after the other, and until when no other is made:
	// "2 until 2026-01-01T00:01:00Z".
	AnnotationPreemptionRest = "mckube.io/preemption-rest"
	// AnnotationReplaces is the UID of the pod that was evicted from another node so that this one runs in its place.
	AnnotationReplaces = "mckube.io/replaces"
)

// AnnotationFilledNode is, on a McKube, the node that the controller filled in: equal to spec.node, that
// field is an observation and binds no later pod.
const AnnotationFilledNode = "mckube.io/filled-node"

// AnnotationLeftLate is, on a McKube, a JSON list of the pods that left a node of late, or were to, because containers that it governs
// missed their deadlines there: the node, when, and how often that has happened to the pods before in whose place each was.
const AnnotationLeftLate = "mckube.io/left-late"

// TaintMakingRoom is on a Node, with effect NoSchedule, while room is made there for a pod that has a toleration for it, and
// pods that cannot be held back otherwise might take the room.
const TaintMakingRoom = "mckube.io/making-room"

// GateYield is the scheduling gate of pods that wait for a more critical one to be scheduled first.
const GateYield = "mckube.io/yield"

// Annotations of nodes, kept from the MC-Kube controller: its CPU agent writes them.
const (
	// AnnotationCPUUsage is the node's CPU utilisation in percent.
	AnnotationCPUUsage = "mckube.sdv.com/cpu-usage"
	// AnnotationCPUOver90 is for how many seconds it has been over 90 %.
	AnnotationCPUOver90 = "mckube.sdv.com/cpu-over90-duration-s"
	// AnnotationCPUBusy is "true" while the node counts as busy.
	AnnotationCPUBusy = "mckube.sdv.com/isCpuBusy"
)

// TaintPressure keeps new pods off a node that is late with its real-time work.
const TaintPressure = "McKubeRTDeadlinePressure"
