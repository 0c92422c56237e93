package test

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpenterv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Fault returns a fault of the simulated cloud that strikes whatever the changes select.
func Fault(name string, kind mckubev1alpha1.FaultType, changes ...func(*mckubev1alpha1.SimulatedFault)) *mckubev1alpha1.SimulatedFault {
	return build(&mckubev1alpha1.SimulatedFault{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       mckubev1alpha1.SimulatedFaultSpec{Type: kind},
	}, changes)
}

// PriceOverlay sets the price, in USD per hour, of machines whose label has one of the values.
func PriceOverlay(name, price, label string, values ...string) *karpenterv1alpha1.NodeOverlay {
	return &karpenterv1alpha1.NodeOverlay{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: karpenterv1alpha1.NodeOverlaySpec{
			Price:        &price,
			Requirements: []karpenterv1alpha1.NodeSelectorRequirement{{Key: label, Operator: "In", Values: values}},
		},
	}
}
