package observe

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// gpus counts the GPUs in a resource list: whole ones of any vendor, or shares of the same GPUs, whichever is more.
func gpus(r corev1.ResourceList) float64 {
	var whole float64
	for name, q := range r {
		if strings.HasSuffix(string(name), ".com/gpu") {
			whole += q.AsApproximateFloat64()
		}
	}
	shares := r[v1alpha1.ResourceGPUMilli]
	return max(whole, shares.AsApproximateFloat64()/1000)
}
