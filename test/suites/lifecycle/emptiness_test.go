package lifecycle_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

var _ = Describe("Emptiness", func() {
	It("closes a node that runs nothing but DaemonSet pods, and no other", func() {
		env.ExpectApplied(
			test.NodePool("general", test.InstanceTypes("c-2x-amd64-linux"), test.Consolidates(karpenterv1.ConsolidationPolicyWhenEmpty, "0s")),
			test.DaemonSet("agent", "100m"),
			test.Deployment("stays", 1, "1"),
		)
		leaves := test.Deployment("leaves", 1, "1")
		env.ExpectApplied(leaves)
		env.EventuallyPodsBound("stays", 1)
		pod := env.EventuallyPodsBound("leaves", 1)[0]
		env.EventuallyNodes(2)
		empty := env.NodeClaimOnNode(pod.Spec.NodeName)

		env.ExpectScaled(leaves, 0)
		env.EventuallyDisrupted(empty, karpenterv1.DisruptionReasonEmpty)
		env.EventuallyNodes(1)
		Expect(env.History().Disrupted()).To(ConsistOf(empty.Name))
		Expect(env.History().Created()).To(HaveLen(2), "an empty node needs no replacement")
	})

	It("waits until a node has been without change for consolidateAfter", func() {
		const delay = 20 * time.Second
		pool := test.NodePool("general", test.Consolidates(karpenterv1.ConsolidationPolicyWhenEmpty, delay.String()))
		brief := test.Deployment("brief", 1, "500m")
		env.ExpectApplied(pool, brief)
		env.EventuallyPodsBound("brief", 1)
		claim := env.NodeClaimOf(env.EventuallyNodes(1)[0])
		env.ExpectScaled(brief, 0)
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonEmpty)

		var changed, consolidatable time.Time
		env.History().Walk(func(s history.State) {
			if c, ok := s.NodeClaims[claim.Name]; ok {
				changed = c.Status.LastPodEventTime.Time
				if ready := c.StatusConditions().Get(karpenterv1.ConditionTypeConsolidatable); ready.IsTrue() {
					consolidatable = ready.LastTransitionTime.Time
				}
			}
		})
		Expect(consolidatable).To(BeTemporally(">=", changed.Add(delay)), "by the API's own times")
	})
})
