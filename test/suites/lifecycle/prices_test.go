package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

var _ = Describe("Prices", func() {
	It("believes the price that a NodeOverlay sets", func() {
		overlay := test.PriceOverlay("rebate", "0.001", corev1.LabelInstanceTypeStable, "m-4x-amd64-linux")
		env.ExpectApplied(overlay, test.NodePool("general", test.Families("c", "m")))
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(overlay), overlay)).To(Succeed())
			g.Expect(overlay.StatusConditions().Root().IsTrue()).To(BeTrue())
		}).Should(Succeed())
		env.ExpectApplied(test.Deployment("web", 1, "3"))
		env.EventuallyPodsBound("web", 1)
		node := env.EventuallyNodes(1)[0]
		Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "m-4x-amd64-linux"), "c-4x has the lower list price")
	})

	It("uses reserved capacity first, and never more than is reserved", func() {
		const reserved = 4 // of this type, in the catalogue
		env.ExpectApplied(
			test.NodePool("general",
				test.InstanceTypes("s-8x-amd64-linux"),
				test.CapacityTypes(karpenterv1.CapacityTypeReserved, karpenterv1.CapacityTypeOnDemand)),
			test.Deployment("web", reserved+2, "5"),
		)
		env.EventuallyPodsBound("web", reserved+2)
		types := map[string]int{}
		for _, node := range env.EventuallyNodes(reserved + 2) {
			types[node.Labels[karpenterv1.CapacityTypeLabelKey]]++
		}
		Expect(types).To(Equal(map[string]int{karpenterv1.CapacityTypeReserved: reserved, karpenterv1.CapacityTypeOnDemand: 2}))
		env.History().Walk(func(s history.State) {
			Expect(ofCapacityType(s, karpenterv1.CapacityTypeReserved)).To(BeNumerically("<=", reserved))
		})
	})

	It("buys spot where the NodePool and the pods allow it, and on-demand where they do not or spot is short", func() {
		env.ExpectApplied(
			test.NodePool("general", test.CapacityTypes(karpenterv1.CapacityTypeSpot, karpenterv1.CapacityTypeOnDemand)),
			test.Deployment("flexible", 1, "1"),
		)
		Expect(capacityTypeOf(env.EventuallyPodsBound("flexible", 1)[0])).To(Equal(karpenterv1.CapacityTypeSpot))
		env.ExpectApplied(test.Deployment("steady", 1, "1", test.OnNodes(karpenterv1.CapacityTypeLabelKey, karpenterv1.CapacityTypeOnDemand)))
		Expect(capacityTypeOf(env.EventuallyPodsBound("steady", 1)[0])).To(Equal(karpenterv1.CapacityTypeOnDemand))

		By("letting the cloud run out of spot")
		env.ExpectFault(test.Fault("no-spot", mckubev1alpha1.FaultShortage, func(f *mckubev1alpha1.SimulatedFault) {
			f.Spec.Selector.CapacityTypes = []string{karpenterv1.CapacityTypeSpot}
		}))
		env.ExpectApplied(test.Deployment("late", 1, "1", test.ApartFrom("flexible", "steady")))
		Expect(capacityTypeOf(env.EventuallyPodsBound("late", 1)[0])).To(Equal(karpenterv1.CapacityTypeOnDemand))
		env.EventuallyNodes(3)
	})
})

func ofCapacityType(s history.State, capacityType string) int {
	n := 0
	for _, c := range s.NodeClaims {
		if c.Labels[karpenterv1.CapacityTypeLabelKey] == capacityType {
			n++
		}
	}
	return n
}

// capacityTypeOf is how the machine of the pod's node was bought.
func capacityTypeOf(pod *corev1.Pod) string {
	GinkgoHelper()
	node := env.History().Last().Nodes[pod.Spec.NodeName]
	Expect(node).NotTo(BeNil())
	return node.Labels[karpenterv1.CapacityTypeLabelKey]
}
