package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("Repacking", func() {
	const large, small = "c-8x-amd64-linux", "c-2x-amd64-linux"

	It("replaces two nodes by seven machines that are cheaper together, once all seven serve", func() {
		env.ExpectControllerWith("--repack=true")
		pool := test.NodePool("general", test.InstanceTypes(large, small), test.CapacityTypes(karpenterv1.CapacityTypeOnDemand))
		web := test.Deployment("web", 14, "900m")
		env.ExpectPending(web)
		env.ExpectApplied(pool)
		env.EventuallyPodsBound("web", 14)
		var claims []*karpenterv1.NodeClaim
		for _, node := range env.EventuallyNodes(2) {
			Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, large))
			claims = append(claims, env.NodeClaimOf(node))
		}

		By("having the small machines cost a fifth, so that two pods each are cheaper than eight on a large one")
		overlay := test.PriceOverlay("rebate", "0.01", corev1.LabelInstanceTypeStable, small)
		env.ExpectApplied(overlay)
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(overlay), overlay)).To(Succeed())
			g.Expect(overlay.StatusConditions().Root().IsTrue()).To(BeTrue())
		}).Should(Succeed())
		deciding("replace", "repack", func() {
			consolidateAll(pool, karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized, karpenterv1.DisruptionReasonUnderutilized, 2)
		})
		for _, node := range env.EventuallyNodes(7) {
			Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, small))
		}
		env.EventuallyPodsBound("web", 14)
		for _, claim := range claims {
			told, ok := env.History().StateAtDeletion(claim.Name)
			Expect(ok).To(BeTrue(), "NodeClaim %s was never deleted", claim.Name)
			serving := lo.Without(told.Initialized(""), lo.Map(claims, func(c *karpenterv1.NodeClaim, _ int) string { return c.Name })...)
			Expect(serving).To(HaveLen(7), "machines that serve when NodeClaim %s is deleted", claim.Name)
		}
		Expect(env.History().Last().PricePerHour()).To(BeNumerically("~", 7*0.01, 0.0001), "USD per hour, 0.4344 before")
	})
})
