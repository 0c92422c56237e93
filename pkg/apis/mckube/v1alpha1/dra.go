package v1alpha1

// Names of the DRA driver for real-time cores and of what its devices carry (KEP-4381, KEP-5075).
// Capacities and attributes must be C identifiers, and capacities whole numbers: the allocator
// mis-rounds milli quantities.
const (
	// DriverCPU is the name of the DRA driver. Every core of a node that takes real-time work is one
	// device, core-<id>, which several claims may share.
	DriverCPU = "cpu." + Group
	// DeviceClassRTCore is the DeviceClass of those devices.
	DeviceClassRTCore = "rt-core"
	// RequestCore is the name of the one request in a claim on a core.
	RequestCore = "core"
	// CapacityRTBandwidth is the share of a core for real-time work, in parts per million.
	CapacityRTBandwidth = "rtBandwidth"
	// AttributeCoreID is the number of the logical CPU.
	AttributeCoreID = "coreID"
	// AttributeNUMANode is the NUMA node of the core.
	AttributeNUMANode = "numaNode"
	// AttributeSMTSibling is the number of the other thread of the core, or -1.
	AttributeSMTSibling = "smtSibling"
	// AttributeBackend is how the node enforces budgets.
	AttributeBackend = "backend"
	// AttributeGranularity is how far a task may run past its budget before it is throttled, in
	// microseconds.
	AttributeGranularity = "granularityUs"
	// AttributeEscalationReserve is the bandwidth in parts per million that the core keeps, beyond its
	// capacity, for the one container that may be escalated at a time (admission test T1k).
	AttributeEscalationReserve = "escalationReservePpm"
)
