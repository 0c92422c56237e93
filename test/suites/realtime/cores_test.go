package realtime_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

var _ = Describe("Cores", func() {
	It("are packed one by one, and a machine is opened when no single one fits, whatever they have together", func() {
		env.ExpectApplied(
			twoCores(),
			test.McKube("control", 60, test.GovernsWorkload("control")),
			// After two of them, two cores have 0.3 of a core free each, which is 0.6 in all.
			test.RTDeployment("control", 3),
		)
		places := env.EventuallyPlaced("control", 3)
		Expect(nodes(places...)).To(HaveLen(2))
		env.EventuallyNodes(2)
		Expect(env.History().Created()).To(HaveLen(2))
	})

	It("are filled before another machine is opened", func() {
		env.ExpectApplied(twoCores(), test.McKube("small", 22, test.GovernsWorkload("small")), test.RTDeployment("small", 8))
		places := env.EventuallyPlaced("small", 8) // four times 0.22 and its margin is 0.884 of 0.9
		Expect(nodes(places...)).To(HaveLen(1))
		perCore := map[int32]int{}
		for _, core := range cores(places) {
			perCore[core]++
		}
		Expect(perCore).To(Equal(map[int32]int{1: 4, 2: 4}))
	})

	It("of a range are alternatives, of which one is used and booked", func() {
		env.ExpectApplied(threeCores(oneMachine))
		first := governed(test.McKube("first", 80, test.Prefers("2-3")))
		second := governed(test.McKube("second", 80, test.Prefers("2-3")))
		third := governed(test.McKube("third", 80, test.Prefers("2-3")))
		Expect(cores([]environment.Place{first, second})).To(ConsistOf(BeEquivalentTo(2), BeEquivalentTo(3)))
		Expect(third.Core).To(BeEquivalentTo(1), "a preference, not a condition: the core that was left")
		Expect(nodes(first, second, third)).To(HaveLen(1))
	})

	It("that do not exist are preferred in vain, and the container gets one that does", func() {
		m := test.McKube("lost", 30, test.Prefers("7"))
		env.ExpectApplied(twoCores())
		place := governed(m)
		Expect(place.Core).To(BeElementOf(int32(1), int32(2)))
		Eventually(func(g Gomega) string {
			g.Expect(env.Client.Get(env, keyOf(m), m)).To(Succeed())
			return m.Status.AllocatedCore
		}).Should(BeElementOf("1", "2"), "the truth is in the status")
	})

	It("are left with what they can keep when nodes are consolidated", func() {
		pool := twoCores()
		control := test.RTDeployment("control", 4)
		env.ExpectApplied(pool, test.McKube("control", 60, test.GovernsWorkload("control")), control)
		before := env.EventuallyPlaced("control", 4)
		Expect(nodes(before...)).To(HaveLen(2))
		env.EventuallyNodes(2)
		// One leaves each machine: on each of them one core is free.
		for _, node := range nodes(before...) {
			for _, p := range before {
				if p.Node == node {
					environment.ExpectChanged(env, p.Pod, cheapToDelete)
					break
				}
			}
		}
		env.ExpectScaled(control, 2)
		Expect(nodes(env.EventuallyPlaced("control", 2)...)).To(HaveLen(2))
		environment.ExpectChanged(env, pool, test.Consolidates(karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized, "0s"))
		env.EventuallyNodes(1)
		after := env.EventuallyPlaced("control", 2)
		Expect(cores(after)).To(ConsistOf(BeEquivalentTo(1), BeEquivalentTo(2)))
	})

	It("are not consolidated onto cores that only have the room together", func() {
		pool := twoCores()
		env.ExpectApplied(pool, test.McKube("control", 60, test.GovernsWorkload("control")), test.RTDeployment("control", 3))
		before := env.EventuallyPlaced("control", 3)
		env.EventuallyNodes(2)
		began := env.Now()
		environment.ExpectChanged(env, pool, test.Consolidates(karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized, "0s"))
		env.EventuallyConsolidatable("two")
		env.ExpectNoDisruption()
		undisturbed(began, before[0].Pod, before[1].Pod, before[2].Pod)
	})

	It("of a node whose enforcement is coarser than what was charged take nothing", func() {
		env.ExpectApplied(
			twoCores(oneMachine), test.Deployment("web", 1, "100m", inPool("two")),
		)
		node := env.EventuallyPodsBound("web", 1)[0].Spec.NodeName
		playOnNode(node, "0s granularity 400")
		Eventually(func() map[string]int64 { return granularities(env.Recorded().Last()) }).Should(HaveKeyWithValue(node, int64(400)))
		env.ExpectApplied(test.McKube("fine", 10), test.RTPod("fine"))
		waiting := env.EventuallyUnschedulable("fine")
		env.EventuallyEvent(waiting, "NotAdmitted", "400 us late, and claims allow 100 us")
		Expect(env.ExpectCommand("explain", "pod", "fine")).To(ContainSubstring("400"))
		Expect(env.RTNode(node).Spec.Servers).To(BeEmpty())
	})

	It("with an escalation reserve take more containers than could all be escalated, and raise one at a time", func() {
		env.ExpectApplied(test.RTNodePool("limited", "two-limited", oneMachine))
		// Together 0.60 of 0.70 at the low budgets, 0.90 at the high ones; each step is 0.15 of 0.20.
		first := governed(test.McKube("first", 30, test.Critical(high), test.MayRiseTo(45), test.Limited(), test.Prefers("1")))
		second := governed(test.McKube("second", 30, test.Critical(high), test.MayRiseTo(45), test.Limited(), test.Prefers("1")))
		Expect([]int32{first.Core, second.Core}).To(HaveEach(BeEquivalentTo(1)))
		s, _ := serverOf(env.History().Last(), first.Pod.UID)
		Expect(s.Limited).To(BeTrue())
		for _, place := range []environment.Place{first, second} {
			play(place, "0s overrun 40; 5s overrun 40")
		}
		Eventually(func() []string {
			return append(levels(env.Recorded(), first.Pod.UID), levels(env.Recorded(), second.Pod.UID)...)
		}).
			Should(ContainElement("hi"))
		env.History().Walk(func(s history.State) {
			Expect(raised(s, first.Node, 1)).To(BeNumerically("<=", 1), "raised at once on a core at revision %d", s.Revision)
		})
	})
})
