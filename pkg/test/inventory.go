package test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// InventoryMachine returns a machine of 4 CPUs and 8 GiB in class edge that a program switches.
func InventoryMachine(name string, changes ...func(*mckubev1alpha1.InventoryMachine)) *mckubev1alpha1.InventoryMachine {
	return build(&mckubev1alpha1.InventoryMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mckubev1alpha1.InventoryMachineSpec{
			HardwareClass: "edge",
			Zone:          "hall-1",
			Architecture:  karpenterv1.ArchitectureAmd64,
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
			},
			Power: mckubev1alpha1.MachinePower{Exec: &mckubev1alpha1.ExecPower{Command: "machine"}},
		},
	}, changes)
}

// BootTimeout is how long the machine may take to become a Ready Node.
func BootTimeout(d time.Duration) func(*mckubev1alpha1.InventoryMachine) {
	return func(m *mckubev1alpha1.InventoryMachine) { m.Spec.BootTimeout = &metav1.Duration{Duration: d} }
}

// AdoptInto is the NodePool that takes the machine over when its Node is there already.
func AdoptInto(nodePool string) func(*mckubev1alpha1.InventoryMachine) {
	return func(m *mckubev1alpha1.InventoryMachine) { m.Spec.AdoptInto = nodePool }
}

// InventoryNodeClass returns a node class of all machines, of the name that NodePools refer to when nothing else is
// said.
func InventoryNodeClass() *nodeclass.InventoryNodeClass {
	return &nodeclass.InventoryNodeClass{ObjectMeta: metav1.ObjectMeta{Name: NodeClassName}}
}

// FromInventory has the pool use the machines of the inventory.
func FromInventory() func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) {
		Families()(p)
		CapacityTypes()(p)
		p.Spec.Template.Spec.NodeClassRef = &karpenterv1.NodeClassReference{
			Group: mckubev1alpha1.Group, Kind: nodeclass.Kind, Name: NodeClassName,
		}
	}
}
