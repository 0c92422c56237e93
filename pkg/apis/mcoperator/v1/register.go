package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of McKube.
const Group = "mcoperator.sdv.com"

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: Group, Version: "v1"}

// AddToScheme registers the types of this package. The program that builds a scheme calls it; importing the package
// registers nothing.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, &McKube{}, &McKubeList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}
