package hollow

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// Slices are the ResourceSlices that publish a node's devices: one pool with the node's name, owned by the
// Node, in as many slices as their size takes. present are those that are there; when they publish
// the same, they are the answer, otherwise the pool gets the next generation.
func Slices(node *corev1.Node, devices []resourcev1.Device, present []resourcev1.ResourceSlice) []resourcev1.ResourceSlice {
	generation := int64(1)
	for _, s := range present {
		generation = max(generation, s.Spec.Pool.Generation)
	}
	wanted := slicesOf(node, devices, generation)
	if publish(wanted, present) {
		return present
	}
	if len(present) > 0 {
		wanted = slicesOf(node, devices, generation+1)
	}
	return wanted
}

func slicesOf(node *corev1.Node, devices []resourcev1.Device, generation int64) []resourcev1.ResourceSlice {
	chunks := slices.Collect(slices.Chunk(devices, resourcev1.ResourceSliceMaxDevices))
	out := make([]resourcev1.ResourceSlice, len(chunks))
	for i, chunk := range chunks {
		out[i] = resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-cores-%d", node.Name, i),
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: ptr.To(true),
				}},
			},
			Spec: resourcev1.ResourceSliceSpec{
				Driver:   v1alpha1.DriverCPU,
				NodeName: ptr.To(node.Name),
				Pool:     resourcev1.ResourcePool{Name: node.Name, Generation: generation, ResourceSliceCount: int64(len(chunks))},
				Devices:  chunk,
			},
		}
	}
	return out
}

// publish says that the present slices are the wanted ones.
func publish(wanted, present []resourcev1.ResourceSlice) bool {
	if len(wanted) != len(present) {
		return false
	}
	for _, w := range wanted {
		i := slices.IndexFunc(present, func(p resourcev1.ResourceSlice) bool { return p.Name == w.Name })
		if i < 0 || !apiequality.Semantic.DeepEqual(w.Spec, present[i].Spec) || !apiequality.Semantic.DeepEqual(w.OwnerReferences, present[i].OwnerReferences) {
			return false
		}
	}
	return true
}
