package test

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
)

// CostPolicy is about all pods, and bounds nothing.
func CostPolicy(name string, changes ...func(*kcloudv1alpha1.CostPolicy)) *kcloudv1alpha1.CostPolicy {
	return build(&kcloudv1alpha1.CostPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}, changes)
}

// PowerPolicy is about all pods, and bounds nothing.
func PowerPolicy(name string, changes ...func(*kcloudv1alpha1.PowerPolicy)) *kcloudv1alpha1.PowerPolicy {
	return build(&kcloudv1alpha1.PowerPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}, changes)
}
