package disruption_test

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

func eachItem(list client.ObjectList, f func(client.Object) error) error {
	return meta.EachListItem(list, func(o runtime.Object) error { return f(o.(client.Object)) })
}

func labels(values map[string]string) scheduling.Requirements {
	return scheduling.NewLabelRequirements(values)
}
