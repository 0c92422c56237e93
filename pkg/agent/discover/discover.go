// Package discover finds the control groups of a node's containers: what the API says of its pods, and
// what the container runtime told before the API knew.
package discover

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mirrorAnnotation is, on the mirror of a static pod, the UID that the kubelet knows the pod by.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// Key names a container of a node.
type Key struct {
	// Pod is the UID of its pod.
	Pod types.UID
	// Container is its name there.
	Container string
}

// Container is a container of a pod that has not ended.
type Container struct {
	// Namespace and Pod are the names of its pod.
	Namespace, Pod string
	// GroupUID is the UID by which the kubelet names the pod's groups: that of the pod, but for static ones.
	GroupUID string
	// ID as the pod's status has it, containerd://<64 hex digits>. Empty while the container does not run.
	ID string
}

// Slim is a transform for caches: it keeps of a Pod what Containers reads.
func Slim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, Containers: names(pod.Spec.Containers), InitContainers: names(pod.Spec.InitContainers),
		},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, ContainerStatuses: running(pod.Status.ContainerStatuses), InitContainerStatuses: running(pod.Status.InitContainerStatuses),
		},
	}
	if uid := pod.Annotations[mirrorAnnotation]; uid != "" {
		slim.Annotations = map[string]string{mirrorAnnotation: uid}
	}
	return slim, nil
}

func names(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(containers))
	for i, c := range containers {
		out[i].Name = c.Name
	}
	return out
}

func running(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, s := range statuses {
		if s.State.Running != nil {
			out = append(out, corev1.ContainerStatus{Name: s.Name, ContainerID: s.ContainerID, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		}
	}
	return out
}

// Containers are those of the pods that have not ended, init containers and sidecars among them. A
// container that restarts is there without an ID until the new one runs.
func Containers(pods []*corev1.Pod) map[Key]Container {
	out := map[Key]Container{}
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			addPod(out, pod)
		}
	}
	return out
}

func addPod(out map[Key]Container, pod *corev1.Pod) {
	uid := string(pod.UID)
	if mirrored := pod.Annotations[mirrorAnnotation]; mirrored != "" {
		uid = mirrored
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range list {
			out[Key{pod.UID, c.Name}] = Container{Namespace: pod.Namespace, Pod: pod.Name, GroupUID: uid}
		}
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, s := range list {
			if c, ok := out[Key{pod.UID, s.Name}]; ok && s.State.Running != nil {
				c.ID = s.ContainerID
				out[Key{pod.UID, s.Name}] = c
			}
		}
	}
}
