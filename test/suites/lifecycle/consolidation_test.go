package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

const decisions = "karpenter_voluntary_disruption_decisions_total"

// consolidate switches a pool that was built with consolidation off to the policy, without delay.
// Its budget opens only once all its nodes may be consolidated, so that the first decision is about
// all of them.
func consolidate(pool *karpenterv1.NodePool, policy karpenterv1.ConsolidationPolicy) {
	GinkgoHelper()
	budgets := pool.Spec.Disruption.Budgets
	environment.ExpectChanged(env, pool, test.Consolidates(policy, "0s"), test.Budgets(test.Budget("0")))
	env.EventuallyConsolidatable(pool.Name)
	environment.ExpectChanged(env, pool, test.Budgets(budgets...))
}

// consolidateAll is consolidate for a decision that has to be about n nodes at once.
func consolidateAll(pool *karpenterv1.NodePool, policy karpenterv1.ConsolidationPolicy, reason karpenterv1.DisruptionReason, n int) {
	GinkgoHelper()
	budgets := pool.Spec.Disruption.Budgets
	environment.ExpectChanged(env, pool, test.Consolidates(policy, "0s"), test.Budgets(test.Budget("0")))
	env.EventuallyCandidates(reason, n)
	environment.ExpectChanged(env, pool, test.Budgets(budgets...))
}

var _ = Describe("Consolidation", func() {
	It("replaces one node by a cheaper one as soon as its pods fit there, and only once that one runs", func() {
		pool := test.NodePool("general")
		shrinks := test.Deployment("shrinks", 6, "900m")
		env.ExpectPending(shrinks)
		env.ExpectApplied(pool)
		env.EventuallyPodsBound("shrinks", 6)
		large := env.EventuallyNodes(1)[0]
		Expect(large.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "c-8x-amd64-linux"))
		before := env.History().Last().PricePerHour()

		env.ExpectScaled(shrinks, 2)
		env.EventuallyPodsBound("shrinks", 2)
		claim := env.NodeClaimOf(large)
		deciding("replace", "single", func() {
			consolidate(pool, karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized)
			env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonUnderutilized)
		})
		env.EventuallyPodsBound("shrinks", 2)
		small := env.EventuallyNodes(1)[0]
		Expect(small.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "c-2x-amd64-linux"))
		env.ExpectReplacedFirst(claim)
		after := env.History().Last().PricePerHour()
		Expect(before).To(BeNumerically("~", 0.2172, 0.0001), "USD per hour for c-8x")
		Expect(after).To(BeNumerically("~", 0.0543, 0.0001), "USD per hour for c-2x")
	})

	It("replaces several nodes by one cheaper node in a single decision", func() {
		pool := test.NodePool("general", test.InstanceTypes("c-4x-amd64-linux", "c-2x-amd64-linux"))
		leaves := test.Deployment("leaves", 3, "3300m")
		env.ExpectApplied(pool, leaves)
		env.EventuallyPodsBound("leaves", 3)
		env.ExpectApplied(test.Deployment("stays", 3, "500m")) // of which the leaving pods leave room for one on each node
		env.EventuallyPodsBound("stays", 3)
		env.EventuallyNodes(3)
		before := env.History().Last()

		env.ExpectScaled(leaves, 0)
		env.EventuallyPodsBound("leaves", 0)
		deciding("replace", "multi", func() {
			consolidateAll(pool, karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized, karpenterv1.DisruptionReasonUnderutilized, 3)
		})
		node := env.EventuallyNodes(1)[0]
		env.EventuallyPodsBound("stays", 3)
		after := env.History().Last()
		Expect(before.PricePerHour()).To(BeNumerically("~", 3*0.1086, 0.0001), "USD per hour for three c-4x")
		Expect(after.PricePerHour()).To(BeNumerically("~", 0.0543, 0.0001), "USD per hour for one c-2x")
		Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "c-2x-amd64-linux"))
		most, _ := env.History().MostDisrupting("general")
		Expect(most).To(Equal(3), "all three in one decision")
		for name := range before.NodeClaims {
			env.ExpectReplacedFirst(before.NodeClaims[name])
		}
	})

	It("removes a node without replacement when its pods fit on the others", func() {
		pool := test.NodePool("general", test.InstanceTypes("c-4x-amd64-linux"))
		leaves := test.Deployment("leaves", 2, "3")
		env.ExpectApplied(pool, leaves)
		env.EventuallyPodsBound("leaves", 2)
		env.ExpectApplied(test.Deployment("stays", 2, "600m")) // of which the leaving pods leave room for one on each node
		env.EventuallyPodsBound("stays", 2)
		env.EventuallyNodes(2)

		env.ExpectScaled(leaves, 0)
		env.EventuallyPodsBound("leaves", 0)
		deciding("delete", "single", func() { consolidate(pool, karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized) })
		env.EventuallyNodes(1)
		env.EventuallyPodsBound("stays", 2)
		Expect(env.History().Created()).To(HaveLen(2))
	})

	It("buys spot for on-demand nodes when that is cheaper and the NodePool comes to allow it", func() {
		pool := test.NodePool("general", test.InstanceTypes("c-2x-amd64-linux"))
		env.ExpectApplied(pool, test.Deployment("web", 1, "1"))
		env.EventuallyPodsBound("web", 1)
		claim := env.NodeClaimOf(env.EventuallyNodes(1)[0])
		environment.ExpectChanged(env, pool, test.CapacityTypes(karpenterv1.CapacityTypeSpot, karpenterv1.CapacityTypeOnDemand))
		consolidate(pool, karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized)
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonUnderutilized)
		spot := env.EventuallyNodes(1)[0]
		Expect(spot.Labels).To(HaveKeyWithValue(karpenterv1.CapacityTypeLabelKey, karpenterv1.CapacityTypeSpot))
		Expect(env.History().Last().PricePerHour()).To(BeNumerically("~", 0.038, 0.0001))
	})
})

// deciding expects act to lead to a consolidation of that action and type, by the controller's own count.
func deciding(action, consolidationType string, act func()) {
	GinkgoHelper()
	env.EventuallyIncreases(decisions, map[string]string{"decision": action, "consolidation_type": consolidationType}, act)
}
