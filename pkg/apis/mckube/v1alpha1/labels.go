package v1alpha1

// Labels of machines. NodePools and pods may select on them; the cloud provider puts them on
// instance types, NodeClaims and Nodes.
const (
	// LabelHardwareClass is the kind of machine: general, gpu, npu or edge. NodePools that do not
	// name this label are never offered edge machines.
	LabelHardwareClass = Group + "/hardware-class"
	// LabelGPUModel is the model of the machine's GPUs, for example T4; absent without GPUs.
	LabelGPUModel = Group + "/gpu-model"
	// LabelNPUModel is the model of the machine's neural processing units; absent without any.
	LabelNPUModel = Group + "/npu-model"
	// LabelWattsIdle is the power of the idle machine in watts, a decimal number.
	LabelWattsIdle = Group + "/watts-idle"
	// LabelWattsMax is the power of the fully loaded machine in watts, a decimal number.
	LabelWattsMax = Group + "/watts-max"
	// LabelDeviceWattsIdle is the part of LabelWattsIdle that the machine's GPUs and NPUs draw together; absent
	// where it is not known apart.
	LabelDeviceWattsIdle = Group + "/device-watts-idle"
	// LabelDeviceWattsMax is the part of LabelWattsMax that they draw; absent as LabelDeviceWattsIdle is.
	LabelDeviceWattsMax = Group + "/device-watts-max"
	// LabelHeldFor marks a ResourceClaim that the controller made for a container that ran already, and not
	// the scheduler; its value is the pod's UID.
	LabelHeldFor = Group + "/held-for"
	// LabelRTBackend is, on a Node, what enforces real-time budgets there, as in RTNode.status.backend.
	LabelRTBackend = Group + "/rt-backend"
	// LabelCoreSelection is, on a Node, how cores are chosen for containers whose McKube does not say: Pack or Spread. NodePools
	// give it to their nodes.
	LabelCoreSelection = Group + "/core-selection"
	// LabelReservationID names the capacity reservation that a machine runs in; absent outside
	// reservations.
	LabelReservationID = Group + "/reservation-id"
	// LabelMachine is the name of the InventoryMachine that a NodeClaim or Node runs on.
	LabelMachine = Group + "/machine"
	// LabelHeadroom is the NodePool whose headroom a ResourceClaim, PodTemplate or CapacityBuffer stands for.
	LabelHeadroom = Group + "/headroom"
)

// Annotations that the simulated cloud writes.
const (
	// AnnotationPricePerHour is what the machine costs in USD per hour, a decimal number; on
	// NodeClaims and Nodes.
	AnnotationPricePerHour = Group + "/price-per-hour"
	// AnnotationImage is the simulated machine image. On a KWOKNodeClass: the image to launch with.
	// On a NodeClaim: the image it was launched with. They differ: the NodeClaim has drifted.
	AnnotationImage = Group + "/image"
	// AnnotationInstance is the provider ID that a launch has decided on. It marks the NodeClaim's
	// labels as the record of that launch, so that a launch that was cut short is finished and not
	// decided again.
	AnnotationInstance = Group + "/instance"
	// AnnotationNodeClaim is the name of the NodeClaim whose machine a simulated Node is.
	AnnotationNodeClaim = Group + "/nodeclaim"
	// AnnotationTerminateAt is when the cloud takes an interrupted machine away (RFC 3339); on
	// NodeClaims.
	AnnotationTerminateAt = Group + "/terminate-at"
	// AnnotationFailedBy is the name of the SimulatedFault that broke a Node.
	AnnotationFailedBy = Group + "/failed-by"
)

// AnnotationAdopt is, on a NodeClaim, the name of the InventoryMachine that it was made for, because its Node had
// joined already.
const AnnotationAdopt = Group + "/adopt"

// AnnotationAction is, on a NodeClaim and its Node, the name of the RTAction that it was opened for; on an Eviction, of that which evicts; and on
// the copy of a pod, until its ReplicaSet has taken it for its own, of that which has made it.
const AnnotationAction = Group + "/action"

// AnnotationHeadroom is, on a NodePool, for how many real-time pods of which shape there must always be room, in JSON or
// YAML.
const AnnotationHeadroom = Group + "/headroom"

// AnnotationRTGuarantee is, on a Node, what its backend promises, in words.
const AnnotationRTGuarantee = Group + "/rt-guarantee"

// AnnotationAsked is, on an RTNode, the overruns that were reported to the controller, by server, in JSON; each
// asks for the high budget for a while.
const AnnotationAsked = Group + "/asked"

// ResourceGPUMilli is the extended resource for shares of GPUs: 1000 for each GPU of the machine.
// It counts the same GPUs as their vendor's resource does: where both kinds of pods share machines, a
// pod with n whole GPUs asks for 1000 n of it as well.
const ResourceGPUMilli = "mainspring.dev/gpu-milli"
