package lifecycle_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// spot buys machines on the spot market.
var spot = test.CapacityTypes(karpenterv1.CapacityTypeSpot)

// interrupt gives one spot machine notice and returns its NodeClaim's last version that tells when
// the cloud takes the machine away, and that moment.
func interrupt(notice time.Duration) (*karpenterv1.NodeClaim, time.Time) {
	GinkgoHelper()
	fault := test.Fault("market", mckubev1alpha1.FaultSpotInterruption, test.Notice(notice))
	env.ExpectFault(fault)
	name := env.EventuallyStruck(fault, 1)[0]
	announced, ok := env.History().First(func(s history.State) bool {
		c := s.NodeClaims[name]
		return c != nil && c.Annotations[mckubev1alpha1.AnnotationTerminateAt] != ""
	})
	Expect(ok).To(BeTrue(), "NodeClaim %s says when its machine ends", name)
	claim := announced.NodeClaims[name]
	at, err := time.Parse(time.RFC3339, claim.Annotations[mckubev1alpha1.AnnotationTerminateAt])
	Expect(err).NotTo(HaveOccurred())
	env.EventuallyEvent(claim, "SpotInterruption", at.UTC().Format(time.RFC3339))
	return claim, at
}

// drainedAt returns when the NodeClaim's node was drained, by its condition Drained; zero for never.
func drainedAt(claim string) time.Time {
	GinkgoHelper()
	var at time.Time
	env.History().Walk(func(s history.State) {
		if c := s.NodeClaims[claim]; c != nil {
			if drained := c.StatusConditions().Get(karpenterv1.ConditionTypeDrained); drained.IsTrue() {
				at = drained.LastTransitionTime.Time
			}
		}
	})
	return at
}

var _ = Describe("Spot interruption", func() {
	It("is announced, and its node drained before the notice ends and replaced", func() {
		occupied(test.NodePool("general", spot), 1)
		pod := env.Pods("web")[0]
		claim, end := interrupt(90 * time.Second)
		env.EventuallyGone(claim)
		Expect(drainedAt(claim.Name)).To(And(Not(BeZero()), BeTemporally("<", end)), "drained within the notice, by the API's own times")
		Expect(env.History().Events("InstanceTerminated", "")).To(BeEmpty(), "the cloud found nothing left to take away")

		moved := env.EventuallyPodsBound("web", 1)[0]
		Expect(moved.Spec.NodeName).NotTo(Equal(pod.Spec.NodeName))
		Expect(env.EventuallyNodes(1)[0].Labels).To(HaveKeyWithValue(karpenterv1.CapacityTypeLabelKey, karpenterv1.CapacityTypeSpot))
		Expect(env.History().Created()).To(HaveLen(2))
	})

	It("strikes spot machines only", func() {
		env.ExpectApplied(
			test.NodePool("cheap", spot), test.NodePool("steady"),
			test.Deployment("brief", 1, "500m", test.OnNodes(karpenterv1.NodePoolLabelKey, "cheap")),
			test.Deployment("steady", 1, "500m", test.OnNodes(karpenterv1.NodePoolLabelKey, "steady")),
		)
		env.EventuallyPodsBound("brief", 1)
		kept := env.EventuallyPodsBound("steady", 1)[0]
		env.EventuallyNodes(2)
		fault := test.Fault("market", mckubev1alpha1.FaultSpotInterruption, test.StrikesAtMost(1))
		env.ExpectFault(fault)
		struck := env.EventuallyStruck(fault, 1)
		env.EventuallyGone(env.History().Last().NodeClaims[struck[0]])
		env.EventuallyPodsBound("brief", 1)
		Expect(env.Pods("steady")[0].UID).To(Equal(kept.UID))
		Expect(env.History().Disrupted()).To(Equal(struck))
	})

	It("takes the machine away when the notice ends, even where a PodDisruptionBudget held up the drain, and its pods start elsewhere", func() {
		env.ExpectApplied(test.PodDisruptionBudget("web", 0))
		occupied(test.NodePool("general", spot), 1)
		pod := env.Pods("web")[0]
		claim, end := interrupt(15 * time.Second)
		node := nodeOf(claim)
		env.EventuallyEvent(node, "InstanceTerminated", "end of its notice")
		env.EventuallyGone(claim, node)

		lost, ok := env.History().First(func(s history.State) bool {
			n := s.Nodes[node.Name]
			return n != nil && readiness(n).Reason == "SimulatedShutdown"
		})
		Expect(ok).To(BeTrue(), "the node was shut down")
		Expect(readiness(lost.Nodes[node.Name]).LastTransitionTime.Time).To(BeTemporally(">=", end), "by the API's own times")
		Expect(podsOn(lost, node.Name)).To(HaveLen(1), "the budget held the pod to the end")
		// Kubernetes itself removes pods of a Node that is gone, after its own delay of a minute.
		Eventually(func(g Gomega) {
			g.Expect(bound(env.Pods("web"))).To(HaveExactElements(HaveField("UID", Not(Equal(pod.UID)))))
		}).Should(Succeed())
		env.EventuallyPodsBound("web", 1)
	})
})

// readiness is the condition Ready of a node.
func readiness(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}
