package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

const moves = "karpenter_consolidation_moves_total"

var _ = Describe("Consolidation policy", func() {
	It("WhenEmpty never moves the pods of an underutilised node, which WhenEmptyOrUnderutilized then does", func() {
		pool := test.NodePool("general", test.InstanceTypes("c-8x-amd64-linux"),
			test.Consolidates(karpenterv1.ConsolidationPolicyWhenEmpty, "0s"))
		env.ExpectApplied(pool, test.Deployment("web", 1, "500m"))
		env.EventuallyPodsBound("web", 1)
		node := env.EventuallyNodes(1)[0]
		environment.ExpectChanged(env, pool, test.Families("c"), test.Requires(corev1.LabelInstanceTypeStable))
		env.ExpectNoDisruption()
		env.EventuallyEvent(node, "Unconsolidatable", "consolidation policy WhenEmpty")

		claim := env.NodeClaimOf(node)
		consolidate(pool, karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized)
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonUnderutilized)
		env.EventuallyNodes(1)
		Expect(env.History().Last().PricePerHour()).To(BeNumerically("<", 0.03))
	})

	It("Balanced moves pods only where the saving is worth the disruption", func() {
		pool := test.NodePool("general", test.InstanceTypes("m-4x-amd64-linux"))
		shrinks := test.Deployment("shrinks", 4, "900m")
		env.ExpectPending(shrinks)
		env.ExpectApplied(pool)
		env.EventuallyPodsBound("shrinks", 4)
		claim := env.NodeClaimOf(env.EventuallyNodes(1)[0])

		By("leaving a node alone that could be a fifth cheaper")
		env.EventuallyIncreases(moves, map[string]string{"decision": "rejected", "nodepool": "general"}, func() {
			environment.ExpectChanged(env, pool, test.Families("c", "m"), test.Requires(corev1.LabelInstanceTypeStable),
				test.Consolidates(karpenterv1.ConsolidationPolicyBalanced, "0s"))
			env.ExpectNoDisruption()
		})

		By("replacing it once it could be five times cheaper")
		env.ExpectScaled(shrinks, 1)
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonUnderutilized)
		env.EventuallyNodes(1)
		Expect(env.History().Last().PricePerHour()).To(BeNumerically("~", 0.0271, 0.0001), "USD per hour for c-1x")
	})
})
