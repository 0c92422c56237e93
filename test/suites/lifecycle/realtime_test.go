package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var _ = Describe("Shares of real-time cores", func() {
	It("open the machine whose cores hold them, counted core by core", func() {
		const perNode = 3 // edge-atom-4x has four cores, of which core 0 is for housekeeping
		env.ExpectAgents()
		env.ExpectApplied(
			environment.DeviceClass(),
			test.CoreShare("six-tenths", 600_000),
			test.NodePool("edge", test.HardwareClass("edge"), test.Requires(corev1.LabelInstanceTypeStable, "edge-atom-4x-amd64-linux")),
			// Two shares of 0.6 do not fit on a core of 0.9, though the sum over three cores would hold four.
			test.Deployment("control", perNode+1, "100m", test.Claims("six-tenths")),
		)
		pods := env.EventuallyPodsBound("control", perNode+1)
		for _, node := range env.EventuallyNodes(2) {
			Expect(node.Labels).To(HaveKeyWithValue(mckubev1alpha1.LabelHardwareClass, "edge"))
		}
		shares := map[string]int{}
		for _, p := range pods {
			shares[p.Spec.NodeName]++
		}
		Expect(shares).To(HaveEach(BeNumerically("<=", perNode)), "shares on each node")
	})
})
