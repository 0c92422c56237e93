package events

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Reasons of the Events about nodes that are short of CPU or memory.
const (
	ReasonResourcePressureBegan      = "ResourcePressureBegan"
	ReasonResourcePressureAnswered   = "ResourcePressureAnswered"
	ReasonResourcePressureReport     = "ResourcePressureWouldMigrate"
	ReasonResourcePressureUnanswered = "ResourcePressureUnanswered"
	ReasonResourcePressureEnded      = "ResourcePressureEnded"
)

// ResourcePressureBegan tells that a node is short of CPU or memory, and which source says so.
func ResourcePressureBegan(node runtime.Object, uid, since, reason, message string) Event {
	return warning(node, ReasonResourcePressureBegan, fmt.Sprintf("The node is under resource pressure, %s: %s", reason, message), uid, since)
}

// ResourcePressureEnded tells that it no longer is.
func ResourcePressureEnded(node runtime.Object, uid, since, message string) Event {
	return normal(node, ReasonResourcePressureEnded, "The resource pressure of the node is over: "+message, uid, since)
}

// ResourcePressureAnswered tells which pod is moved where for it.
func ResourcePressureAnswered(node runtime.Object, uid, pod, target, migration, why string) Event {
	return normal(node, ReasonResourcePressureAnswered, fmt.Sprintf("Moving pod %s to node %s (PodMigration %s); %s", pod, target, migration, why), uid, pod, migration)
}

// ResourcePressureReport tells a node, or the pod, what would be moved where if anything were.
func ResourcePressureReport(on runtime.Object, uid, pod, target, why string) Event {
	return normal(on, ReasonResourcePressureReport, fmt.Sprintf("Would move pod %s to node %s; %s. Nothing is moved, as --resource-pressure is report", pod, target, why), uid, pod, target)
}

// ResourcePressureUnanswered tells why not enough pods can leave a node.
func ResourcePressureUnanswered(node runtime.Object, uid, why string) Event {
	return warning(node, ReasonResourcePressureUnanswered, "Not enough can leave the node to end its resource pressure: "+why, uid, why)
}
