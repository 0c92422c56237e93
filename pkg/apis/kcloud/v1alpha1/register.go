package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of everything in this package.
const Group = "kcloud.io"

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme registers the types of this package. Importing the package registers nothing.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &WorkloadOptimizer{}, &WorkloadOptimizerList{},
		&CostPolicy{}, &CostPolicyList{}, &PowerPolicy{}, &PowerPolicyList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
