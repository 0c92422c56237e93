package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("Shares of real-time cores", func() {
	It("open the machine whose cores hold them, counted core by core", func() {
		cores := []int{1, 2, 3} // of edge-atom-4x, whose core 0 is for housekeeping
		env.ExpectApplied(
			test.CoreDeviceClass(),
			test.CoreShare("six-tenths", 600_000),
			test.NodePool("edge", test.HardwareClass("edge"), test.Requires(corev1.LabelInstanceTypeStable, "edge-atom-4x-amd64-linux")),
			// Two shares of 0.6 do not fit on a core of 0.95, though the sum over three cores would hold four.
			test.Deployment("control", int32(len(cores)+1), "100m", test.Claims("six-tenths")),
		)
		nodes := env.EventuallyMachines(2)
		for _, node := range nodes {
			Expect(node.Labels).To(HaveKeyWithValue(mckubev1alpha1.LabelHardwareClass, "edge"))
			env.ExpectApplied(test.CoreSlice(node, cores...)) // the test is the node's DRA driver
		}
		pods := env.EventuallyPodsBound("control", len(cores)+1)
		env.EventuallyNodes(2)
		perNode := map[string]int{}
		for _, p := range pods {
			perNode[p.Spec.NodeName]++
		}
		for node, n := range perNode {
			Expect(n).To(BeNumerically("<=", len(cores)), "shares on %s", node)
		}
	})
})
