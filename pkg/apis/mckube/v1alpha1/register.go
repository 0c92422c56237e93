package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of everything in this package, and the domain of the labels and
// annotations that Mainspring puts on other objects.
const Group = "mckube.io"

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme registers the types of this package. The program that builds a scheme calls it; importing the package
// registers nothing.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &SimulatedFault{}, &SimulatedFaultList{}, &RTNode{}, &RTNodeList{}, &InventoryMachine{}, &InventoryMachineList{}, &RTAction{}, &RTActionList{},
		&PodMigration{}, &PodMigrationList{}, &MigrationPolicy{}, &MigrationPolicyList{}, &NodeCheckpoint{}, &NodeCheckpointList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
