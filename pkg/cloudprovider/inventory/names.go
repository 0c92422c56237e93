package inventory

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// PowerSpec is how a machine is switched.
type PowerSpec = v1alpha1.MachinePower

// Machine is an InventoryMachine.
type Machine = v1alpha1.InventoryMachine

// ProviderPrefix begins the provider IDs of machines.
const ProviderPrefix = "inventory://"

// ProviderID is the identity of a machine, as kubelets give it (--provider-id) and Karpenter knows it.
func ProviderID(machine string) string { return ProviderPrefix + machine }

// machineOf is the machine's name in a provider ID, and whether it is one of ours.
func machineOf(id string) (string, bool) { return strings.CutPrefix(id, ProviderPrefix) }

// nodeName is the name that the machine's kubelet joins with.
func nodeName(m *Machine) string { return cmp.Or(m.Spec.NodeName, m.Name) }

// isNodeOf tells whether the Node is the machine's, as far as its provider ID says; a Node without one takes its
// name's.
func isNodeOf(m *Machine, node *corev1.Node) bool {
	return node.Spec.ProviderID == "" || node.Spec.ProviderID == ProviderID(m.Name)
}

// availability is what the machine may be used for.
func availability(m *Machine) v1alpha1.MachineAvailability {
	return cmp.Or(m.Spec.Availability, v1alpha1.MachineOffered)
}
