package ladder_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var _ = Describe("Real-time pressure", func() {
	It("that nothing can ease is told, keeps new pods off the node, and ends by itself", func() {
		env.ExpectApplied(twoCores(atMost(1)))
		place := governed(test.McKube("control", 30, test.Critical(high), test.MayRiseTo(50)))
		play(place, "0s overrun 150") // 15 seconds, most of them at the highest budget
		eventuallyPressed(place.Node)
		env.EventuallyEvent(&corev1.Node{ObjectMeta: nodeMeta(place.Node)}, "PressureBegan", "control")
		env.EventuallyEvent(&corev1.Node{ObjectMeta: nodeMeta(place.Node)}, "PressureUnanswered", "")
		eventuallyOver()
		env.EventuallyEvent(&corev1.Node{ObjectMeta: nodeMeta(place.Node)}, "PressureEnded", "")
		Expect(actions(env.History())).To(BeEmpty())
		Expect(env.EventuallyPlace("control").Pod.UID).To(Equal(place.Pod.UID))
	})

	It("is answered on the node where a core has room: a lesser container moves to it, and comes back", func() {
		env.ExpectApplied(twoCores(atMost(1)))
		place := governed(test.McKube("control", 50, test.Critical(high), test.Prefers("1")))
		lesser := governed(test.McKube("lesser", 35, test.Prefers("1")))
		Expect([]int32{place.Core, lesser.Core}).To(HaveEach(BeEquivalentTo(1)))
		began := env.Now()
		play(place, crowded)
		eventuallyPressed(place.Node)
		action := eventuallyAnswered("Rearrange")
		Expect(action.Spec.Moves).To(ConsistOf(And(HaveField("PodUID", lesser.Pod.UID), HaveField("Core", BeEquivalentTo(2)))))
		Expect(env.EventuallyPlace("lesser").Core).To(BeEquivalentTo(2))
		env.EventuallyEvent(place.Pod, "PressureAnswered", action.Name)
		env.EventuallyEvent(lesser.Pod, "Moved", action.Name)
		play(place, "")
		eventuallyOver()
		Expect(answers(env.History())).To(Equal([]string{"Rearrange"}))
		undisturbed(began, place.Pod, lesser.Pod)
	})

	It("of a node whose cores hold one critical container fewer than they did has that one go to a node that is opened", func() {
		env.ExpectApplied(twoCores())
		places := replicated(test.McKube("control", 44, test.Critical(high)), 2)
		big := governed(test.McKube("big", 80, test.Critical(high)))
		Expect([]string{places[0].Node, places[1].Node}).To(HaveEach(big.Node))
		began := env.Now()
		playOnNode(big.Node, "0s granularity 4000") // each takes 4 % of its core more than was charged
		eventuallyPressed(big.Node)
		env.EventuallyEvent(&corev1.Node{ObjectMeta: nodeMeta(big.Node)}, "PressureBegan", "no core of the node holds it")
		eventuallyAnswered("OpenNode")
		eventuallyAnswered("Migrate")
		eventuallyOver()
		Expect(answers(env.History())).To(Equal([]string{"OpenNode", "Migrate"}))
		Expect(lo.Map(env.EventuallyPlaced("control", 2), func(p environment.Place, _ int) bool { return p.Node == big.Node })).To(ConsistOf(true, false))
		undisturbed(began, big.Pod)
	})

	It("of a container that gets no raise on a busy node, as its core has room for another's only, has it move to the next core", func() {
		env.ExpectApplied(test.RTNodePool("limited", "two-limited", atMost(1)))
		// Each step is 0.15 of the core's reserve of 0.20.
		first := governed(test.McKube("first", 30, test.Critical(high), test.MayRiseTo(45), test.Limited(), test.Prefers("1")))
		second := governed(test.McKube("second", 30, test.Critical(high), test.MayRiseTo(45), test.Limited(), test.Prefers("1")))
		Expect([]int32{first.Core, second.Core}).To(HaveEach(BeEquivalentTo(1)))
		began := env.Now()
		playOnNode(first.Node, "0s pressure 95")
		eventuallyPressed(first.Node)
		env.EventuallyEvent(&corev1.Node{ObjectMeta: nodeMeta(first.Node)}, "PressureBegan", "the node's CPU is busy")
		action := eventuallyAnswered("Rearrange")
		Expect(action.Spec.Moves).To(ConsistOf(And(HaveField("PodUID", BeElementOf(first.Pod.UID, second.Pod.UID)), HaveField("Core", BeEquivalentTo(2)))))
		playOnNode(first.Node, "0s pressure 10")
		eventuallyOver()
		undisturbed(began, first.Pod, second.Pod)
	})
})
