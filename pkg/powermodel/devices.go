package powermodel

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// DeviceKind is a kind of accelerator.
type DeviceKind string

// The kinds of accelerators. None is the kind of every other resource.
const (
	None DeviceKind = ""
	GPU  DeviceKind = "gpu"
	NPU  DeviceKind = "npu"
)

// Resources whose names do not end in the kind, each of which counts whole devices: those of Intel's and AWS's device plugins.
// Their other resources (tiles, memory, cores) count parts of the same devices.
var (
	gpuNames = []corev1.ResourceName{"gpu.intel.com/i915", "gpu.intel.com/xe", v1alpha1.ResourceGPUMilli}
	npuNames = []corev1.ResourceName{"aws.amazon.com/neuron"}
	// npuDomains are vendors of which every resource counts NPUs.
	npuDomains = []string{"furiosa.ai", "hailo.ai", "habana.ai"}
)

// KindOf returns the kind of accelerator that an extended resource counts, as device plugins name them: <vendor>/gpu,
// <vendor>/npu, <vendor>/tpu, the names above, and the resources of vendors that make nothing else.
func KindOf(name corev1.ResourceName) DeviceKind {
	domain, last, _ := strings.Cut(string(name), "/")
	switch {
	case last == "gpu", slices.Contains(gpuNames, name):
		return GPU
	case last == "npu", last == "tpu", slices.Contains(npuNames, name), slices.Contains(npuDomains, domain):
		return NPU
	}
	return None
}

// CountsWhole says that one unit of the resource is a whole accelerator.
func CountsWhole(name corev1.ResourceName) bool {
	return KindOf(name) != None && string(name) != v1alpha1.ResourceGPUMilli
}

// Devices returns how many accelerators of a kind a list holds. Shares of GPUs (v1alpha1.ResourceGPUMilli, 1000 for
// each) count the same GPUs as whole ones do, so the larger number counts.
func Devices(list corev1.ResourceList, kind DeviceKind) float64 {
	whole, shares := 0.0, 0.0
	for name, q := range list {
		switch {
		case KindOf(name) != kind:
		case string(name) == v1alpha1.ResourceGPUMilli:
			shares = q.AsApproximateFloat64() / 1000
		default:
			whole += q.AsApproximateFloat64()
		}
	}
	return max(whole, shares)
}

// DeviceLoad returns the share of a machine's accelerators that is requested, from 0 to 1.
func DeviceLoad(requested, allocatable corev1.ResourceList) float64 {
	wanted, capacity := 0.0, 0.0
	for _, kind := range []DeviceKind{GPU, NPU} {
		n := Devices(allocatable, kind)
		wanted += min(n, Devices(requested, kind))
		capacity += n
	}
	if capacity == 0 {
		return 0
	}
	return wanted / capacity
}
