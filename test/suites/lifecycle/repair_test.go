package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// failure breaks the NodeClaim's node, in the way that the changes say; the kubelet stops when they
// say nothing.
func failure(claim *karpenterv1.NodeClaim, changes ...test.FaultChange) *mckubev1alpha1.SimulatedFault {
	return test.Fault(claim.Name, mckubev1alpha1.FaultNodeFailure, append(changes, test.StrikesNodeClaims(claim.Name))...)
}

// breakNode breaks the NodeClaim's node and waits until it is broken.
func breakNode(claim *karpenterv1.NodeClaim, changes ...test.FaultChange) *mckubev1alpha1.SimulatedFault {
	GinkgoHelper()
	fault := failure(claim, changes...)
	env.ExpectFault(fault)
	env.EventuallyStruck(fault, 1)
	return fault
}

// eventuallyRepaired expects that the pods of the NodeClaim's node run elsewhere, and that it is gone
// in the end. Where no kubelet tells that the pods have stopped, Karpenter waits a minute before it
// lets go of the node.
func eventuallyRepaired(claim *karpenterv1.NodeClaim) {
	GinkgoHelper()
	Eventually(func() string { return env.Recorded().DisruptionReason(claim.Name) }).Should(Equal(string(karpenterv1.DisruptionReasonUnhealthy)))
	Eventually(func() int { return servingElsewhere(env.Recorded().Last(), "web", claim.Status.NodeName) }).Should(Equal(2))
	env.EventuallyGone(claim)
}

func nodeOf(claim *karpenterv1.NodeClaim) *corev1.Node {
	GinkgoHelper()
	node, ok := env.History().Last().Nodes[claim.Status.NodeName]
	Expect(ok).To(BeTrue(), "NodeClaim %s has no Node", claim.Name)
	return node
}

var _ = Describe("Node repair", func() {
	unhealthy := test.Breaks(string(kwok.KWOKUnhealthyCondition))

	DescribeTable("replaces a broken node, and no other,",
		func(how ...test.FaultChange) {
			claims := occupied(onePool(), 2)
			broken := claims[0]
			breakNode(broken, how...)
			eventuallyRepaired(broken)
			env.EventuallyNodes(2)
			env.EventuallyPodsBound("web", 2)
			Expect(env.History().Disrupted()).To(ConsistOf(broken.Name))
			env.ExpectReplacedFirst(broken)
		},
		Entry("when its kubelet has stopped"),
		Entry("when it reports a fault by a condition", unhealthy),
	)

	It("waits for the toleration of the fault before it acts", func() {
		env.ExpectControllerWith("--simulated-repair-toleration=10m")
		claims := occupied(onePool(), 2)
		breakNode(claims[0], unhealthy)
		env.ExpectNoDisruption()
		Expect(env.History().Disrupted()).To(BeEmpty())
	})

	It("reboots a node where that mends it, after its pods have left, and replaces nothing", func() {
		env.ExpectApplied(test.NodePool("fixed", test.InstanceTypes("c-2x-amd64-linux"), test.Replicas(2)), test.Deployment("web", 2, "500m"))
		env.EventuallyNodes(2)
		pod := env.EventuallyPodsBound("web", 2)[0]
		claims := env.NodeClaims()
		rebooted := env.NodeClaimOnNode(pod.Spec.NodeName)
		boot := nodeOf(rebooted).Status.NodeInfo.BootID
		breakNode(rebooted, test.Breaks(string(kwok.KWOKRebootRequiredCondition)))

		Eventually(func(g Gomega) {
			rebooting := env.NodeClaimOnNode(rebooted.Status.NodeName).StatusConditions().Get(karpenterv1.ConditionTypeRebooting)
			g.Expect(rebooting).To(HaveField("Reason", karpenterv1.RebootReasonSucceeded))
		}).Should(Succeed())
		env.EventuallyNodes(2)
		env.EventuallyPodsBound("web", 2)
		Expect(names(env.NodeClaims())).To(Equal(names(claims)), "the same machines")
		Expect(env.History().Created()).To(HaveLen(2))
		again, ok := env.History().First(func(s history.State) bool {
			node := s.Nodes[rebooted.Status.NodeName]
			return node != nil && node.Status.NodeInfo.BootID != "" && node.Status.NodeInfo.BootID != boot
		})
		Expect(ok).To(BeTrue(), "the node has booted again")
		Expect(podsOn(again, rebooted.Status.NodeName)).To(BeEmpty(), "pods on the node when it booted again")
		Expect(nodeOf(rebooted).Spec.Taints).To(BeEmpty())
	})

	It("leaves a broken node alone that is annotated do-not-repair, says so, and repairs it afterwards", func() {
		claim := occupied(onePool(), 1)[0]
		env.ExpectRestart()
		node := nodeOf(claim).DeepCopy()
		environment.ExpectChanged(env, node, func(n *corev1.Node) { n.Annotations[karpenterv1.DoNotRepairAnnotationKey] = "true" })
		breakNode(claim, unhealthy)
		env.EventuallyEvent(node, "DisruptionBlocked", karpenterv1.DoNotRepairAnnotationKey)
		env.ExpectNoDisruption()
		Expect(env.History().Disrupted()).To(BeEmpty())

		environment.ExpectChanged(env, node, func(n *corev1.Node) { delete(n.Annotations, karpenterv1.DoNotRepairAnnotationKey) })
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonUnhealthy)
		env.EventuallyPodsBound("web", 1)
	})

	It("stops while more than a fifth of the NodePool is broken, says so, and goes on afterwards", func() {
		claims := occupied(test.NodePool("general", test.InstanceTypes("c-1x-amd64-linux")), 3)
		// Both at once: whichever came first alone would be repaired.
		first, second := failure(claims[0], unhealthy), failure(claims[1], unhealthy)
		env.ExpectApplied(first, second)
		env.EventuallyStruck(first, 1)
		env.EventuallyStruck(second, 1)
		env.EventuallyEvent(nodeOf(claims[0]), "NodeRepairBlocked", "more than 20% of nodes in nodepool")
		env.ExpectNoDisruption()
		Expect(env.History().Disrupted()).To(BeEmpty())

		env.ExpectDeleted(second)
		env.EventuallyDisrupted(claims[0], karpenterv1.DisruptionReasonUnhealthy)
		env.EventuallyNodes(3)
		Expect(env.History().Disrupted()).To(ConsistOf(claims[0].Name), "the other has recovered by itself")
	})

	It("keeps to the budget for broken nodes", func() {
		claim := occupied(onePool(test.Budgets(test.Budget("0", karpenterv1.DisruptionReasonUnhealthy))), 1)[0]
		breakNode(claim, unhealthy)
		env.ExpectNoDisruption()
		Expect(env.History().Disrupted()).To(BeEmpty())
	})
})

func names(claims []*karpenterv1.NodeClaim) []string {
	var list []string
	for _, c := range claims {
		list = append(list, c.Name)
	}
	return list
}

// podsOn returns the pods that are bound to the node and not finished, by name.
func podsOn(s history.State, node string) []types.NamespacedName {
	var list []types.NamespacedName
	for name, p := range s.Pods {
		if p.Spec.NodeName == node && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			list = append(list, name)
		}
	}
	return list
}
