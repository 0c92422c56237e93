package lifecycle_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

const rtPressure karpenterv1.DisruptionReason = "RTPressure"

// replacement asks for the node of a NodeClaim to be replaced, as whoever relieves real-time pressure does.
func replacement(claim *karpenterv1.NodeClaim) *mckubev1alpha1.RTAction {
	node := claim.Status.NodeName
	return &mckubev1alpha1.RTAction{
		ObjectMeta: metav1.ObjectMeta{Name: "replace-" + node},
		Spec: mckubev1alpha1.RTActionSpec{
			Kind: "ReplaceNode", Reason: string(rtPressure), Cause: "by-hand", Attempt: 1, Node: node, NodePool: "general",
			Beneficiary: mckubev1alpha1.ActionBeneficiary{Kind: "Node", Name: node, Criticality: "High"}, Timeout: metav1.Duration{Duration: 10 * time.Minute},
		},
	}
}

// eventuallyEnded expects an action to come to a phase, with a message that has the words.
func eventuallyEnded(action *mckubev1alpha1.RTAction, phase, words string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(action), action)).To(Succeed())
		g.Expect(string(action.Status.Phase)).To(Equal(phase), "%+v", action.Status)
		g.Expect(action.Status.Message).To(ContainSubstring(words))
	}).Should(Succeed())
}

var _ = Describe("An action that replaces a node", func() {
	It("waits for the budget of reason RTPressure, and has another node opened first", func() {
		pool := onePool(test.Budgets(test.Budget("1"), test.Budget("0", rtPressure)))
		claim := occupied(pool, 1)[0]
		action := replacement(claim)
		env.ExpectApplied(action)
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(action), action)).To(Succeed())
			g.Expect(action.Status.WaitingFor).To(Equal("NodePoolBudget"), "%+v", action.Status)
		}).Should(Succeed())
		env.ExpectNoDisruption()

		environment.ExpectChanged(env, pool, test.Budgets(test.Budget("1")))
		env.EventuallyDisrupted(claim, rtPressure)
		env.ExpectReplacedFirst(claim)
		eventuallyEnded(action, "Succeeded", "")
		env.EventuallyPodsBound("web", 1)
		env.EventuallyNodes(1)
	})

	It("is undone when the cloud refuses the replacement, and says so in its words", func() {
		pool := onePool()
		claim := occupied(pool, 1)[0]
		pod, began := env.Pods("web")[0], env.Now()
		env.ExpectFault(test.Fault("empty", mckubev1alpha1.FaultShortage, test.StrikesAtMost(1)))
		action := replacement(claim)
		env.ExpectApplied(action)
		eventuallyEnded(action, "RolledBack", "refused by SimulatedFault")
		expectRolledBack(claim, pod, began)
	})

	It("goes on under the next leader, which opens no second node", func() {
		pool := onePool()
		claim := occupied(pool, 1)[0]
		env.ExpectFault(test.Fault("slow", mckubev1alpha1.FaultSlowRegistration, test.Delay(15*time.Second)))
		action := replacement(claim)
		env.ExpectApplied(action)
		Eventually(func() int { return len(env.Recorded().Created()) }).Should(Equal(2), "NodeClaims created, the first and its replacement")
		env.Controller.Kill9()
		Expect(env.Controller.Start(env, env.Controller.Flags()...)).To(Succeed())
		eventuallyEnded(action, "Succeeded", "")
		env.EventuallyDisrupted(claim, rtPressure)
		env.EventuallyPodsBound("web", 1)
		env.EventuallyNodes(1)
		Expect(env.History().Created()).To(HaveLen(2))
	})
})
