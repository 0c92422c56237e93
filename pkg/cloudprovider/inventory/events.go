package inventory

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
)

// Reasons of Events.
const (
	reasonJoined   = "MachineJoined"
	reasonFailed   = "MachineFailed"
	reasonLeft     = "MachineLeft"
	reasonAdopting = "MachineAdopted"
	reasonStuck    = "PowerOffFailed"
)

func joinedEvent(m *Machine) events.Event {
	return normal(m, reasonJoined, string(m.Status.Claim.UID), fmt.Sprintf("Node %s is Ready for NodeClaim %s", nodeName(m), m.Status.Claim.NodeClaim))
}

func failedEvents(m *Machine, claim *karpv1.NodeClaim) []events.Event {
	message := fmt.Sprintf("Machine %s is given up and quarantined until %s: %s", m.Name, m.Status.QuarantinedUntil.UTC().Format("15:04:05Z"), m.Status.LastFailure)
	return onBoth(m, claim, reasonFailed, message)
}

func stuckEvents(m *Machine, claim *karpv1.NodeClaim, err error) []events.Event {
	message := fmt.Sprintf("Machine %s cannot be switched off: %s. When it is off for certain, set its spec.availability to OutOfService", m.Name, truncated(err.Error()))
	return onBoth(m, claim, reasonStuck, message)
}

func leftEvent(m *Machine, why string) events.Event {
	return normal(m, reasonLeft, string(m.Status.Claim.UID), "The machine is switched off: "+why)
}

func adoptingEvent(m *Machine, claim *karpv1.NodeClaim) events.Event {
	return normal(m, reasonAdopting, claim.Name, fmt.Sprintf("Node %s has joined already; NodeClaim %s takes it over", nodeName(m), claim.Name))
}

// onBoth tells it on the machine and on the NodeClaim. Events of one reason are told apart by their dedupe values alone.
func onBoth(m *Machine, claim *karpv1.NodeClaim, reason, message string) []events.Event {
	list := []events.Event{warning(m, reason, m.Name+string(m.Status.Claim.UID), message)}
	if claim != nil {
		list = append(list, warning(claim, reason, string(claim.UID), message))
	}
	return list
}

func normal(on runtime.Object, reason, dedupe, message string) events.Event {
	e := warning(on, reason, dedupe, message)
	e.Type = corev1.EventTypeNormal
	return e
}

func warning(on runtime.Object, reason, dedupe, message string) events.Event {
	return events.Event{InvolvedObject: on, Type: corev1.EventTypeWarning, Reason: reason, Message: message, DedupeValues: []string{dedupe}}
}
