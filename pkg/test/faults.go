package test

import (
	"time"

	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// FaultChange changes a fault that is being built.
type FaultChange = func(*mckubev1alpha1.SimulatedFault)

// StrikesNodeClaims lets the fault strike only NodeClaims of these names.
func StrikesNodeClaims(names ...string) FaultChange {
	return func(f *mckubev1alpha1.SimulatedFault) { f.Spec.Selector.NodeClaims = names }
}

// StrikesInstanceTypes lets the fault strike only instance types of these names.
func StrikesInstanceTypes(names ...string) FaultChange {
	return func(f *mckubev1alpha1.SimulatedFault) { f.Spec.Selector.InstanceTypes = names }
}

// StrikesNodePools lets the fault strike only machines of these NodePools.
func StrikesNodePools(names ...string) FaultChange {
	return func(f *mckubev1alpha1.SimulatedFault) { f.Spec.Selector.NodePools = names }
}

// StrikesZones lets the fault strike only machines in these zones.
func StrikesZones(zones ...string) FaultChange {
	return func(f *mckubev1alpha1.SimulatedFault) { f.Spec.Selector.Zones = zones }
}

// StrikesAtMost bounds how many NodeClaims the fault strikes in its life.
func StrikesAtMost(n int32) FaultChange {
	return func(f *mckubev1alpha1.SimulatedFault) { f.Spec.Count = &n }
}

// Notice is the time between a spot interruption's notice and the end of the machine.
func Notice(d time.Duration) FaultChange {
	return func(f *mckubev1alpha1.SimulatedFault) { f.Spec.Notice = &metav1.Duration{Duration: d} }
}

// Delay is how much later machines join, for slow registration; how long after its launch a machine
// dies, for failed registration.
func Delay(d time.Duration) FaultChange {
	return func(f *mckubev1alpha1.SimulatedFault) { f.Spec.Delay = &metav1.Duration{Duration: d} }
}

// Breaks is the Node condition that a node failure sets; without it the kubelet stops.
func Breaks(condition string) FaultChange {
	return func(f *mckubev1alpha1.SimulatedFault) { f.Spec.Condition = condition }
}

// IgnoresSIGTERM makes the pods' processes end only when they are killed, at the end of their grace.
func IgnoresSIGTERM() func(*PodTemplate) {
	return annotated("pod-delete.stage.kwok.x-k8s.io/ignore-sigterm", "true")
}

func annotated(key, value string) func(*PodTemplate) {
	return func(t *PodTemplate) { t.Annotations = lo.Assign(t.Annotations, map[string]string{key: value}) }
}
