package inventory_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("A machine", func() {
	It("is switched on for a pod, and off when nobody needs it", func() {
		env.ExpectApplied(machine("edge-1"))
		phase("edge-1", "Free")
		Expect(power("edge-1")).To(Equal("off"))

		env.ExpectApplied(test.NodePool("edge", test.FromInventory()), test.Deployment("web", 1, "1"))
		pods := env.EventuallyPodsBound("web", 1)
		Expect(pods[0].Spec.NodeName).To(Equal("edge-1"))
		m := phase("edge-1", "InUse")
		nodes := env.EventuallyNodes(1)
		Expect(nodes[0].Spec.ProviderID).To(Equal("inventory://edge-1"))
		claim := env.NodeClaimOf(nodes[0])
		Expect(m.Status.Claim.UID).To(Equal(claim.UID))
		Expect(power("edge-1")).To(Equal("on"))

		env.ExpectDeleted(test.Deployment("web", 1, "1"), claim)
		env.EventuallyGone(claim)
		phase("edge-1", "Free")
		Expect(power("edge-1")).To(Equal("off"))
		Expect(calls("edge-1", "on")).To(Equal(1))
	})
})
