package ladder_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// crowdedNode has control and a neighbour on core 1 of the only machine, and its core 2 full.
func crowdedNode(neighbour *mcoperatorv1.McKube) (control, beside environment.Place) {
	GinkgoHelper()
	beside = replicated(neighbour, 1)[0]
	control = governed(test.McKube("control", 50, test.Critical(high)))
	big := governed(test.McKube("big", 80, test.Critical(high)))
	Expect([]string{beside.Node, big.Node}).To(HaveEach(control.Node))
	return control, beside
}

var _ = Describe("Bad days:", func() {
	It("a provider without machines is told of, and asked again; what was tried leaves nothing behind", func() {
		env.ExpectApplied(twoCores())
		control, _ := crowdedNode(test.McKube("peer", 35, test.Critical(high)))
		shortage := test.Fault("shortage", mckubev1alpha1.FaultShortage, test.StrikesInstanceTypes("two-cores"))
		env.ExpectFault(shortage)
		play(control, crowded)
		eventuallyPressed(control.Node)
		env.EventuallyEvent(control.Pod, "PressureUnanswered", "")
		Eventually(func() []string { return phases(env.Recorded(), "OpenNode") }).Should(ContainElement(BeElementOf("RolledBack", "Refused", "Failed")))
		Expect(env.NodeClaims()).To(HaveLen(1))
		env.ExpectDeleted(shortage)
		play(control, "")
		eventuallyOver()
		env.EventuallyNodes(1)
	})

	It("a PodDisruptionBudget that never allows it is waited for only as long as there is pressure", func() {
		env.ExpectApplied(twoCores(), test.PodDisruptionBudget("lesser", 0))
		control, lesser := crowdedNode(test.McKube("lesser", 35, test.Restarts()))
		governed(test.McKube("other", 80, test.Critical(high)))
		began := env.Now()
		play(control, crowded)
		eventuallyPressed(control.Node)
		Eventually(func() string { return env.ExpectCommand("queue") }).Should(ContainSubstring("PodDisruptionBudget"))
		play(control, "")
		eventuallyOver()
		undisturbed(began, control.Pod, lesser.Pod)
		Expect(phases(env.History(), "Migrate")).To(HaveEach(BeElementOf("Withdrawn", "Expired")))
	})

	It("a PodDisruptionBudget that never allows an eviction keeps no pod that another one can serve for before it goes", func() {
		env.ExpectApplied(twoCores(), test.PodDisruptionBudget("lesser", 0))
		control, lesser := crowdedNode(test.McKube("lesser", 35))
		other := governed(test.McKube("other", 80, test.Critical(high))).Node
		began := env.Now()
		play(control, crowded)
		action := eventuallyAnswered("Migrate")
		Expect(action.Spec.Beside).To(BeTrue())
		env.EventuallyGone(lesser.Pod)
		Expect(env.EventuallyPlace("lesser").Node).To(Equal(other))
		eventuallyOver()
		Expect(fewestReady(env.History().Since(began), "lesser")).To(Equal(1))
	})

	It("the controller is killed again and again while it migrates: the pod goes once, and nothing is left half done", func() {
		random := environment.Random()
		env.ExpectApplied(twoCores())
		control, lesser := crowdedNode(test.McKube("lesser", 35))
		other := governed(test.McKube("other", 80, test.Critical(high))).Node
		Expect(other).NotTo(Equal(control.Node))
		play(control, crowded)
		for range 5 {
			env.EventuallyWrites(random.IntN(12))
			env.Controller.Kill9()
			Expect(env.Controller.Start(env, env.Controller.Flags()...)).To(Succeed())
		}
		eventuallyAnswered("Migrate")
		env.EventuallyGone(lesser.Pod)
		Expect(env.EventuallyPlace("lesser").Node).To(Equal(other))
		eventuallyOver()
		Expect(answers(env.History())).To(Equal([]string{"Migrate"}))
	})

	It("two pressures that want the same room both end: one gets it, for the other a node is opened", func() {
		env.ExpectApplied(twoCores())
		var controls, peers []environment.Place
		for _, n := range []string{"a", "b"} {
			peers = append(peers, replicated(test.McKube("peer-"+n, 35, test.Critical(high)), 1)[0])
			controls = append(controls, governed(test.McKube("control-"+n, 50, test.Critical(high))))
			governed(test.McKube("big-"+n, 80, test.Critical(high)))
		}
		Expect(controls[0].Node).NotTo(Equal(controls[1].Node))
		governed(test.McKube("half", 40, test.Critical(high)))
		full := governed(test.McKube("full", 85, test.Critical(high)))
		Expect(full.Node).NotTo(BeElementOf(controls[0].Node, controls[1].Node))
		play(controls[0], crowded)
		play(controls[1], crowded)
		Eventually(func() []string { return answers(env.Recorded()) }).Should(ConsistOf("Migrate", "OpenNode", "Migrate"))
		eventuallyOver()
		Expect(env.EventuallyPlace("peer-a").Node).NotTo(Equal(env.EventuallyPlace("peer-b").Node))
		for i, n := range []string{"peer-a", "peer-b"} {
			Expect(env.EventuallyPlace(n).Pod.UID).NotTo(Equal(peers[i].Pod.UID))
		}
		env.EventuallyNodes(4)
	})
})
