package lifecycle_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// failedReplacement lets a node drift under a fault that ends the first replacement, closes the
// budget so that there is no second one, and returns the replacement's name when it is gone.
func failedReplacement(pool *karpenterv1.NodePool, fault *mckubev1alpha1.SimulatedFault) string {
	GinkgoHelper()
	env.ExpectFault(fault)
	before := len(env.History().Created())
	nextGeneration(pool, "2")
	var replacement string
	Eventually(func(g Gomega) {
		created := env.Recorded().Created()
		g.Expect(len(created)).To(BeNumerically(">", before), "NodeClaims created")
		replacement = created[before]
	}).Should(Succeed())
	environment.ExpectChanged(env, pool, test.Budgets(test.Budget("0")))
	Eventually(func() map[string]*karpenterv1.NodeClaim { return env.Recorded().Last().NodeClaims }).ShouldNot(HaveKey(replacement))
	return replacement
}

// expectRolledBack expects the NodeClaim's node to serve again as if nothing had been tried: it was
// tainted, and is so no more; its condition DisruptionReason is cleared; its pod was never touched.
func expectRolledBack(claim *karpenterv1.NodeClaim, pod *corev1.Pod, since uint64) {
	GinkgoHelper()
	_, tried := env.History().First(func(s history.State) bool { return history.IsTainted(s.Nodes[claim.Status.NodeName]) })
	Expect(tried).To(BeTrue(), "the replacement was begun")
	Eventually(func(g Gomega) {
		now := env.Recorded().Last()
		g.Expect(history.IsTainted(now.Nodes[claim.Status.NodeName])).To(BeFalse(), "taint of the disruption")
		g.Expect(now.NodeClaims[claim.Name].StatusConditions().Get(karpenterv1.ConditionTypeDisruptionReason).IsTrue()).To(BeFalse())
	}).Should(Succeed())
	env.ExpectNoDisruption()
	Expect(undisturbed(env.History().Since(since), pod)).To(BeTrue(), "the pod ran on undisturbed")
	env.EventuallyNodes(1)
}

var _ = Describe("The orchestration queue", func() {
	It("keeps a node until its replacement is initialised, however long that takes", func() {
		pool := onePool()
		claim := occupied(pool, 1)[0]
		pod, began := env.Pods("web")[0], env.Now()
		slow := test.Fault("slow", mckubev1alpha1.FaultSlowRegistration, test.Delay(20*time.Second))
		env.ExpectFault(slow)
		nextGeneration(pool, "2")
		env.EventuallyAnyEvent("DisruptionWaitingReadiness", "Waiting on readiness")
		Expect(undisturbed(env.History().Since(began), pod)).To(BeTrue(), "the pod waits with its node")
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonDrifted)
		env.ExpectReplacedFirst(claim)
		env.EventuallyPodsBound("web", 1)
	})

	DescribeTable("rolls back when a replacement fails:",
		func(fault *mckubev1alpha1.SimulatedFault, reason, message string) {
			pool := onePool()
			claim := occupied(pool, 1)[0]
			pod, began := env.Pods("web")[0], env.Now()
			replacement := failedReplacement(pool, fault)
			Expect(messages(env.History().Events(reason, replacement))).To(ContainElement(ContainSubstring(message)))
			expectRolledBack(claim, pod, began)
		},
		// Karpenter gives a machine 15 minutes to join. A real cloud tells earlier that it died, and so
		// does the simulated one: three seconds after its launch.
		Entry("its machine dies before it joins",
			test.Fault("stillborn", mckubev1alpha1.FaultFailedRegistration, test.Delay(3*time.Second), test.StrikesAtMost(1)),
			"RegistrationFailed", "does not join"),
		Entry("the cloud has no machine for it",
			test.Fault("empty", mckubev1alpha1.FaultShortage, test.StrikesAtMost(1)),
			"InsufficientCapacityError", "refused by SimulatedFault"),
	)

	It("tries again after a failure, and gets the node replaced", func() {
		pool := onePool()
		claim := occupied(pool, 1)[0]
		env.ExpectFault(test.Fault("stillborn", mckubev1alpha1.FaultFailedRegistration, test.Delay(3*time.Second), test.StrikesAtMost(1)))
		nextGeneration(pool, "2")
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonDrifted)
		env.EventuallyPodsBound("web", 1)
		env.EventuallyNodes(1)
		Expect(env.History().Created()).To(HaveLen(3), "the first node, the failure, the replacement")
		env.ExpectReplacedFirst(claim)
	})
})

var _ = Describe("A shortage", func() {
	pool := func() *karpenterv1.NodePool {
		return test.NodePool("general", test.InstanceTypes("c-1x-amd64-linux", "c-2x-amd64-linux"), test.Zones("test-zone-a", "test-zone-b"))
	}
	short := func(changes ...test.FaultChange) *mckubev1alpha1.SimulatedFault {
		return test.Fault("short", mckubev1alpha1.FaultShortage, changes...)
	}

	DescribeTable("is met with the next cheapest offering",
		func(fault *mckubev1alpha1.SimulatedFault, labels map[string]string) {
			env.ExpectFault(fault)
			env.ExpectApplied(pool(), test.Deployment("web", 1, "500m"))
			env.EventuallyPodsBound("web", 1)
			node := env.EventuallyNodes(1)[0]
			for key, value := range labels {
				Expect(node.Labels).To(HaveKeyWithValue(key, value))
			}
		},
		Entry("in another zone", short(test.StrikesZones("test-zone-a")),
			map[string]string{corev1.LabelTopologyZone: "test-zone-b", corev1.LabelInstanceTypeStable: "c-1x-amd64-linux"}),
		Entry("of another instance type", short(test.StrikesInstanceTypes("c-1x-amd64-linux")),
			map[string]string{corev1.LabelInstanceTypeStable: "c-2x-amd64-linux"}),
	)

	It("that shows only at the launch is told to the pod, and the launch repeated", func() {
		env.ExpectFault(short(test.StrikesAtMost(1)))
		pod := test.Pod("web", "500m")
		env.ExpectApplied(pool(), pod)
		env.EventuallyEvent(pod, "InsufficientCapacityError", "refused by SimulatedFault")
		env.EventuallyPodsBound("web", 1)
		Expect(env.History().Created()).To(HaveLen(2))
		env.EventuallyNodes(1)
	})

	It("of everything leaves the pods pending and says so, and they are served when it ends", func() {
		fault := short()
		env.ExpectFault(fault)
		pod := test.Pod("web", "500m")
		env.ExpectApplied(pool(), pod)
		env.EventuallyEvent(pod, "FailedScheduling", "filtered out all available instance types")
		Expect(env.History().Last().Nodes).To(BeEmpty())
		env.ExpectDeleted(fault)
		env.EventuallyPodsBound("web", 1)
	})
})

func messages(events []*corev1.Event) []string {
	var list []string
	for _, e := range events {
		list = append(list, e.Message)
	}
	return list
}
