package hollow

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// NodeNameField is the index of Pods and ResourceSlices by their node.
const NodeNameField = "spec.nodeName"

// Scheme knows what agents read and write.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

// CacheOptions make a cache of what agents see and nothing else: pods that are bound, without what is in
// them, and the slices of our driver.
func CacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {
				Field:     fields.OneTermNotEqualSelector(NodeNameField, ""),
				Transform: slimPod,
			},
			&corev1.Node{}:              {Transform: slimNode},
			&resourcev1.ResourceSlice{}: {Field: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, v1alpha1.DriverCPU)},
		},
	}
}

// Index adds the indexes that a Fleet needs; call it before the cache starts.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for object, node := range map[client.Object]func(client.Object) string{
		&corev1.Pod{}:               nodeOfPod,
		&resourcev1.ResourceSlice{}: nodeOfSlice,
	} {
		err := indexer.IndexField(ctx, object, NodeNameField, func(o client.Object) []string { return []string{node(o)} })
		if err != nil {
			return fmt.Errorf("indexing %T by node: %w", object, err)
		}
	}
	return nil
}

// slimPod keeps what containers need: who they are, where, since when, and the script.
func slimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Annotations: onlyScript(pod.Annotations),
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, Containers: onlyNames(pod.Spec.Containers), InitContainers: onlyNames(pod.Spec.InitContainers)},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, ContainerStatuses: onlyStates(pod.Status.ContainerStatuses), InitContainerStatuses: onlyStates(pod.Status.InitContainerStatuses)},
	}
	return slim, nil
}

// slimNode drops what agents do not look at; images are the largest part of a Node.
func slimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	node.ManagedFields = nil
	node.Status = corev1.NodeStatus{Conditions: node.Status.Conditions}
	return node, nil
}

func onlyScript(annotations map[string]string) map[string]string {
	if script, ok := annotations[AnnotationScript]; ok {
		return map[string]string{AnnotationScript: script}
	}
	return nil
}

func onlyNames(containers []corev1.Container) []corev1.Container {
	var slim []corev1.Container
	for _, c := range containers {
		slim = append(slim, corev1.Container{Name: c.Name})
	}
	return slim
}

func onlyStates(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var slim []corev1.ContainerStatus
	for _, s := range statuses {
		slim = append(slim, corev1.ContainerStatus{Name: s.Name, State: s.State})
	}
	return slim
}
