package ladder_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
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

	It("opens a node of another NodePool where that of the node may open none", func() {
		env.ExpectApplied(twoCores(atMost(1), test.Weight(10)), test.RTNodePool("refuge", "two-cores"))
		t := crowdedMachine()
		t.begin()
		eventuallyAnswered("OpenNode")
		eventuallyAnswered("Migrate")
		Expect(env.EventuallyPlace("peer").Node).NotTo(Equal(t.node))
		t.end()
		eventuallyOver()
		env.EventuallyNodes(1, environment.OfPool("refuge"))
	})

	It("moves a pod once: who went to another core is taken along with its node only when nothing else helps", func() {
		env.ExpectApplied(twoCores(test.Budgets(test.Budget("1"))))
		late := pressuredAt(3, 5)
		lesser := replicated(test.McKube("lesser", 35, test.Prefers("1"), late), 1)[0]
		control := replicated(test.McKube("control", 50, test.Critical(high), test.Prefers("1"), late), 1)[0]
		big := governed(test.McKube("big", 80, test.Critical(high), test.Prefers("2")))
		Expect([]string{lesser.Node, big.Node}).To(HaveEach(control.Node))
		other := governed(test.McKube("other", 85, test.Critical(high)))
		Expect(other.Node).NotTo(Equal(control.Node))
		env.ExpectDeleted(big.Pod) // core 2 of both machines has room for both pods now
		env.EventuallyGone(big.Pod)

		play(control, "0s overrun-while-crowded 10")
		moved := eventuallyAnswered("Rearrange")
		Expect(moved.Spec.Moves).To(ConsistOf(HaveField("PodUID", lesser.Pod.UID)))
		playOnNode(control.Node, "0s late")
		migrated := eventuallyAnswered("Migrate")
		Expect(migrated.Spec.Pods).To(ConsistOf(HaveField("UID", control.Pod.UID)))
		last := eventuallyAnswered("ReplaceNode")
		Expect(last.Spec.Displaces).To(ConsistOf(HaveField("UID", lesser.Pod.UID)))
		Expect(last.Spec.Cause).To(Equal(moved.Spec.Cause + "/node"))
		Expect(last.Spec.Message).To(ContainSubstring("moved for this pressure before, is moved once more, as the last resort"))
		env.EventuallyGone(lesser.Pod)
		eventuallyOver()
		env.EventuallyPlace("lesser")
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

	It("replaces two nodes that are late one after the other, where the budget for it allows one", func() {
		env.ExpectControllerWith("--rt-pressure-patience=2m")
		pool := twoCores(test.Budgets(test.Budget("1", "RTPressure"), test.Budget("0", karpenterv1.DisruptionReasonDrifted)))
		env.ExpectApplied(pool)
		first := replicated(test.McKube("control", 60, test.Critical(high), pressuredAt(3, 5)), 2)
		second := replicated(test.McKube("vision", 60, test.Critical(high), pressuredAt(3, 5)), 2)
		late := []string{first[0].Node, second[0].Node}
		Expect([]string{first[1].Node, second[1].Node}).To(Equal(late))
		claims := []*karpenterv1.NodeClaim{env.NodeClaimOnNode(late[0]), env.NodeClaimOnNode(late[1])}
		for _, node := range late {
			playOnNode(node, "0s late")
		}
		for _, claim := range claims {
			env.EventuallyDisrupted(claim, "RTPressure")
		}
		env.ExpectAtMostDisrupted("two", 1)
		Expect(said("ReplaceNode")).To(ContainElement("NodePoolBudget"))
		for _, workload := range []string{"control", "vision"} {
			for _, p := range env.EventuallyPlaced(workload, 2) {
				Expect(late).NotTo(ContainElement(p.Node))
			}
		}
		eventuallyOver()
	})
})
