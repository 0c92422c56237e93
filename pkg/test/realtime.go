package test

import (
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// RTPod is a pod that bears the label of real-time workloads. Its McKube says what it gets.
func RTPod(name string, changes ...func(*PodTemplate)) *corev1.Pod {
	return Pod(name, "100m", append([]func(*PodTemplate){RealTime()}, changes...)...)
}

// RTDeployment is a Deployment of such pods.
func RTDeployment(name string, replicas int32, changes ...func(*PodTemplate)) *appsv1.Deployment {
	return Deployment(name, replicas, "100m", append([]func(*PodTemplate){RealTime()}, changes...)...)
}

// RealTime marks pods as a real-time workload.
func RealTime() func(*PodTemplate) {
	return func(t *PodTemplate) {
		t.Labels = lo.Assign(t.Labels, map[string]string{mcoperatorv1.LabelRT: "test"})
	}
}

// InNamespace puts the pod, or the workload, into a namespace.
func InNamespace(namespace string) func(*PodTemplate) {
	return func(t *PodTemplate) { t.Namespace = namespace }
}

// WithContainer adds a container to the pods.
func WithContainer(name string) func(*PodTemplate) {
	return func(t *PodTemplate) {
		t.Spec.Containers = append(t.Spec.Containers, corev1.Container{
			Name: name, Image: image,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}},
		})
	}
}

// RTNodePool is a NodePool of machines of the edge class, which have cores for real-time work, of
// one instance type.
func RTNodePool(name, instanceType string, changes ...func(*karpenterv1.NodePool)) *karpenterv1.NodePool {
	edge := []func(*karpenterv1.NodePool){HardwareClass("edge"), Requires(corev1.LabelInstanceTypeStable, instanceType)}
	return NodePool(name, append(edge, changes...)...)
}
