package replay

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

const (
	// appLabel marks the pods of a replay; its value is appName.
	appLabel = "app"
	appName  = "replay"
	// jobLabel is the number of a pod's job.
	jobLabel = "replay.mckube.io/job"
	// doNotDisrupt is Karpenter's annotation for pods that may not be moved.
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
	// service is the recorded quality of service of pods that may be moved: latency-sensitive, so a service and not a job
	// whose work would be lost.
	service = "LS"
	// gpuResource is the resource of whole GPUs.
	gpuResource corev1.ResourceName = "nvidia.com/gpu"
)

// Manifest is the Pod of a job. number is the job's place in the plan, attempt counts from 0.
func Manifest(j Job, namespace string, number, attempt int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      podName(j.Name, number, attempt),
			Namespace: namespace,
			Labels:    map[string]string{appLabel: appName, jobLabel: fmt.Sprint(number)},
		},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			AutomountServiceAccountToken:  new(bool),
			Affinity:                      modelAffinity(j),
			Containers: []corev1.Container{{
				Name: "work", Image: "replay", Resources: corev1.ResourceRequirements{Requests: requests(j), Limits: limits(j)},
			}},
		},
	}
	if j.QoS != service {
		pod.Annotations = map[string]string{doNotDisrupt: "true"}
	}
	return pod
}

// podName is a name that the API server takes: the recorded one where that is possible.
func podName(recorded string, number, attempt int) string {
	name := strings.ToLower(recorded)
	if len(validation.IsDNS1123Subdomain(name)) > 0 || len(name) > 200 {
		name = fmt.Sprintf("job-%d", number)
	}
	if attempt > 0 {
		name += fmt.Sprintf("-again-%d", attempt)
	}
	return name
}

func requests(j Job) corev1.ResourceList {
	list := limits(j)
	list[corev1.ResourceCPU] = *resource.NewMilliQuantity(j.CPUMilli, resource.DecimalSI)
	list[corev1.ResourceMemory] = *resource.NewQuantity(j.MemoryMiB<<20, resource.BinarySI)
	return list
}

// limits are the extended resources, which must be requested and limited alike. Whole GPUs are also charged as shares,
// so that whole and fractional pods on one machine together never get more GPUs than it has.
func limits(j Job) corev1.ResourceList {
	list := corev1.ResourceList{}
	switch {
	case j.FractionalGPU():
		list[v1alpha1.ResourceGPUMilli] = *resource.NewQuantity(j.GPUMilli, resource.DecimalSI)
	case j.GPUs > 0:
		list[gpuResource] = *resource.NewQuantity(j.GPUs, resource.DecimalSI)
		list[v1alpha1.ResourceGPUMilli] = *resource.NewQuantity(1000*j.GPUs, resource.DecimalSI)
	}
	return list
}

// modelAffinity asks for machines with one of the recorded GPU models.
func modelAffinity(j Job) *corev1.Affinity {
	if j.GPUs == 0 || len(j.GPUModels) == 0 {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: v1alpha1.LabelGPUModel, Operator: corev1.NodeSelectorOpIn, Values: j.GPUModels,
			}},
		}}},
	}}
}
