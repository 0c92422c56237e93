package simulated

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Reasons of the Events that faults leave.
const (
	reasonInterrupted        = "SpotInterruption"
	reasonTerminated         = "InstanceTerminated"
	reasonFailed             = "SimulatedNodeFailure"
	reasonRecovered          = "SimulatedNodeRecovery"
	reasonRegistrationSlow   = "RegistrationDelayed"
	reasonRegistrationFailed = "RegistrationFailed"
)

func interruptedEvent(claim *karpv1.NodeClaim, fault *v1alpha1.SimulatedFault, at time.Time) events.Event {
	return warning(claim, reasonInterrupted, string(claim.UID),
		fmt.Sprintf("SimulatedFault %s: the spot machine is taken away at %s", fault.Name, at.UTC().Format(time.RFC3339)))
}

func terminatedEvent(node *corev1.Node) events.Event {
	return warning(node, reasonTerminated, string(node.UID), "The spot machine was taken away at the end of its notice")
}

func failedEvent(node *corev1.Node, fault *v1alpha1.SimulatedFault) events.Event {
	what := "the kubelet stopped"
	if fault.Spec.Condition != "" {
		what = fmt.Sprintf("condition %s became True", fault.Spec.Condition)
	}
	return warning(node, reasonFailed, string(node.UID)+fault.Name, fmt.Sprintf("SimulatedFault %s: %s", fault.Name, what))
}

func recoveredEvent(node *corev1.Node, fault string) events.Event {
	e := warning(node, reasonRecovered, string(node.UID)+fault, fmt.Sprintf("SimulatedFault %s ended", fault))
	e.Type = corev1.EventTypeNormal
	return e
}

func registrationSlowEvent(claim *karpv1.NodeClaim, fault *v1alpha1.SimulatedFault) events.Event {
	return warning(claim, reasonRegistrationSlow, string(claim.UID)+fault.Name,
		fmt.Sprintf("SimulatedFault %s: the machine joins %s late", fault.Name, fault.Spec.Delay.Duration))
}

func registrationFailedEvent(claim *karpv1.NodeClaim, fault *v1alpha1.SimulatedFault) events.Event {
	return warning(claim, reasonRegistrationFailed, string(claim.UID)+fault.Name,
		fmt.Sprintf("SimulatedFault %s: the machine does not join", fault.Name))
}

func warning(on runtime.Object, reason, dedupe, message string) events.Event {
	return events.Event{
		InvolvedObject: on,
		Type:           corev1.EventTypeWarning,
		Reason:         reason,
		Message:        message,
		DedupeValues:   []string{dedupe},
	}
}
