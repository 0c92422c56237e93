package ladder_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("Where no core of the node helps, real-time pressure", func() {
	It("is answered by a migration where only another node has room", func() {
		env.ExpectApplied(twoCores())
		lesser := replicated(test.McKube("lesser", 35, test.Prefers("1")), 1)[0]
		place := governed(test.McKube("control", 50, test.Critical(high), test.Prefers("1")))
		big := governed(test.McKube("big", 80, test.Critical(high), test.Prefers("2")))
		Expect([]string{lesser.Node, big.Node}).To(HaveEach(place.Node))
		other := governed(test.McKube("other", 80, test.Critical(high))).Node
		Expect(other).NotTo(Equal(place.Node))
		began := env.Now()
		play(place, crowded)
		action := eventuallyAnswered("Migrate")
		Expect(action.Spec.TargetNode).To(Equal(other))
		Expect(action.Spec.Pods).To(ConsistOf(HaveField("UID", lesser.Pod.UID)))
		Expect(env.EventuallyPlace("lesser").Node).To(Equal(other))
		eventuallyOver()
		Expect(answers(env.History())).To(Equal([]string{"Migrate"}))
		env.EventuallyNodes(2)
		undisturbed(began, place.Pod, big.Pod)
	})

	It("is answered by preemption where no node has room for the lesser pod, and none may be opened", func() {
		env.ExpectApplied(twoCores(atMost(1)))
		lesser := replicated(test.McKube("lesser", 35, test.Prefers("1")), 1)[0]
		place := governed(test.McKube("control", 50, test.Critical(high), test.Prefers("1")))
		big := governed(test.McKube("big", 80, test.Critical(high), test.Prefers("2")))
		began := env.Now()
		play(place, crowded)
		action := eventuallyAnswered("Preempt")
		Expect(action.Spec.Pods).To(ConsistOf(HaveField("UID", lesser.Pod.UID)))
		env.EventuallyEvent(lesser.Pod, "ActionStarted", "Preempt")
		env.EventuallyUnschedulable("lesser")
		undisturbed(began, place.Pod, big.Pod)
		play(place, "") // there is room again only when the pressure is over
		eventuallyOver()
		env.EventuallyPlace("lesser")
		Expect(answers(env.History())).To(Equal([]string{"Preempt"}))
	})

	It("opens a node where none has room for what has to move and nobody is less critical", func() {
		env.ExpectApplied(twoCores())
		peer := replicated(test.McKube("peer", 35, test.Critical(high), test.Prefers("1")), 1)[0]
		place := governed(test.McKube("control", 50, test.Critical(high), test.Prefers("1")))
		big := governed(test.McKube("big", 80, test.Critical(high), test.Prefers("2")))
		Expect([]string{peer.Node, big.Node}).To(HaveEach(place.Node))
		began := env.Now()
		play(place, crowded)
		eventuallyAnswered("OpenNode")
		eventuallyAnswered("Migrate")
		Expect(env.EventuallyPlace("peer").Node).NotTo(Equal(place.Node))
		eventuallyOver()
		env.EventuallyNodes(2)
		Expect(answers(env.History())).To(Equal([]string{"OpenNode", "Migrate"}))
		undisturbed(began, place.Pod, big.Pod)
	})

	It("replaces a node that is late whatever runs on it, within the budget for it", func() {
		pool := twoCores(test.Budgets(test.Budget("1", "RTPressure"), test.Budget("0", karpenterv1.DisruptionReasonDrifted)))
		env.ExpectApplied(pool)
		m := test.McKube("control", 60, test.Critical(high), pressuredAt(3, 5))
		places := replicated(m, 2)
		Expect(places[1].Node).To(Equal(places[0].Node))
		claim := env.NodeClaimOnNode(places[0].Node)
		playOnNode(places[0].Node, "0s late")
		eventuallyAnswered("ReplaceNode")
		env.EventuallyDisrupted(claim, "RTPressure")
		env.ExpectAtMostDisrupted("two", 1)
		for _, p := range env.EventuallyPlaced("control", 2) {
			Expect(p.Node).NotTo(Equal(places[0].Node))
		}
		eventuallyOver()
	})
})
