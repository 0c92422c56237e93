package state

// Names of the gates, in the order in which they are passed.
const (
	GateMcKube     = "McKube"
	GateSettings   = "Settings"
	GateClaim      = "Claim"
	GateTemplate   = "Template"
	GateScheduling = "SchedulingGates"
	GateCore       = "Core"
	GateAllocated  = "Allocated"
	GateNode       = "Node"
	GateAgent      = "Agent"
	GatePlaced     = "Placed"
	GateConfigured = "Configured"
)

// Reasons of gates beyond those of rt.Verdict.
const (
	ReasonGranularityTooCoarse = "GranularityTooCoarse"
	ReasonNoCoreFits           = "NoCoreFits"
	ReasonNoCores              = "NoCores"
	ReasonNodeHasNoCores       = "NodeHasNoCores"
)
