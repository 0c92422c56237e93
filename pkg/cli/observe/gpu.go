package observe

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// gpus counts the GPUs in a resource list: whole ones of any vendor.
func gpus(r corev1.ResourceList) float64 {
	var count float64
	for name, q := range r {
		if strings.HasSuffix(string(name), ".com/gpu") {
			count += q.AsApproximateFloat64()
		}
	}
	return count
}
