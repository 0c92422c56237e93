package ladder_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// trouble is one of two pressures that only another machine can answer, and how it is begun and ended. Everything that
// runs can be made again elsewhere.
type trouble struct {
	node       string
	pods       []*corev1.Pod
	begin, end func()
}

// crowdedMachine is answered by OpenNode: control has a peer on its core, nobody is less critical, the other core is full.
func crowdedMachine() trouble {
	GinkgoHelper()
	peer := replicated(test.McKube("peer", 35, test.Critical(high)), 1)[0]
	control := replicated(test.McKube("control", 50, test.Critical(high)), 1)[0]
	big := replicated(test.McKube("big", 80, test.Critical(high)), 1)[0]
	Expect([]string{peer.Node, big.Node}).To(HaveEach(control.Node))
	return trouble{
		node: control.Node, pods: []*corev1.Pod{peer.Pod, control.Pod, big.Pod},
		begin: func() { play(control, crowded) }, end: func() { play(control, "") },
	}
}

// lateMachine is answered by ReplaceNode: whatever runs on it is late.
func lateMachine() trouble {
	GinkgoHelper()
	places := replicated(test.McKube("control", 60, test.Critical(high), pressuredAt(3, 5)), 2)
	Expect(places[1].Node).To(Equal(places[0].Node))
	node := places[0].Node
	return trouble{
		node: node, pods: []*corev1.Pod{places[0].Pod, places[1].Pod},
		begin: func() { playOnNode(node, "0s late") }, end: func() { playOnNode(node, "0s late 1s") },
	}
}

// untouched expects that the machine is the only one, open, and that the pods run there as they did.
func (t trouble) untouched(began uint64) {
	GinkgoHelper()
	nodes := env.EventuallyNodes(1)
	Expect(nodes[0].Name).To(Equal(t.node))
	Eventually(func() int { return len(env.NodeClaims()) }).Should(Equal(1))
	Expect(env.NodeClaims()).To(HaveEach(HaveField("DeletionTimestamp", BeNil())), "it is not being closed")
	undisturbed(began, t.pods...)
}

// eventuallyOpening expects that a second machine is asked for, and an action of the kind to run.
func eventuallyOpening(kind mckubev1alpha1.ActionKind) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.NodeClaims()).To(HaveLen(2))
		g.Expect(phases(env.Recorded(), kind)).To(ContainElement("Running"))
	}).Should(Succeed())
}

// slow keeps machines of the pool from joining for longer than a scenario takes.
func slow() *mckubev1alpha1.SimulatedFault {
	return test.Fault("slow", mckubev1alpha1.FaultSlowRegistration, test.StrikesNodePools("two"), test.Delay(5*time.Minute))
}

var _ = Describe("Midway", func() {
	DescribeTable("the pressure ends by itself: what was being opened is given up, and all is as before",
		func(make func() trouble, kind mckubev1alpha1.ActionKind) {
			env.ExpectApplied(twoCores())
			t := make()
			began := env.Now()
			env.ExpectFault(slow())
			t.begin()
			eventuallyOpening(kind)
			t.end()
			eventuallyOver()
			Expect(phases(env.History(), kind)).To(HaveEach("RolledBack"))
			t.untouched(began)
		},
		Entry("a node that was to be opened", crowdedMachine, mckubev1alpha1.ActionKind("OpenNode")),
		Entry("a node that was to be replaced", lateMachine, mckubev1alpha1.ActionKind("ReplaceNode")),
	)

	DescribeTable("the NodePool is deleted: the action ends, and everything runs on machines of another",
		func(make func() trouble, kind mckubev1alpha1.ActionKind) {
			pool := twoCores(test.Weight(10))
			env.ExpectApplied(pool, test.RTNodePool("refuge", "two-cores"))
			t := make()
			env.ExpectFault(slow())
			t.begin()
			eventuallyOpening(kind)
			env.ExpectDeleted(pool)
			for _, pod := range t.pods {
				env.EventuallyGone(pod)
			}
			eventuallyRunning(t.pods)
			eventuallyOver()
			Expect(phases(env.History(), kind)).To(HaveEach(BeElementOf("RolledBack", "Succeeded")))
			env.EventuallyNodes(0, environment.OfPool("two"))
		},
		Entry("a node was to be opened", crowdedMachine, mckubev1alpha1.ActionKind("OpenNode")),
		Entry("a node was to be replaced", lateMachine, mckubev1alpha1.ActionKind("ReplaceNode")),
	)

	DescribeTable("the new machine never joins: that is undone in time and told, the old one serves on",
		func(make func() trouble, kind mckubev1alpha1.ActionKind) {
			env.ExpectControllerWith("--rt-pressure-node-timeout=8s")
			env.ExpectApplied(twoCores())
			t := make()
			began := env.Now()
			env.ExpectFault(test.Fault("dead", mckubev1alpha1.FaultFailedRegistration))
			t.begin()
			eventuallyOpening(kind)
			Eventually(func() []string { return phases(env.Recorded(), kind) }).Should(ContainElement("RolledBack"))
			env.EventuallyAnyEvent("ActionRollsBack", "")
			t.end()
			eventuallyOver()
			t.untouched(began)
		},
		Entry("a node was to be opened", crowdedMachine, mckubev1alpha1.ActionKind("OpenNode")),
		Entry("a node was to be replaced", lateMachine, mckubev1alpha1.ActionKind("ReplaceNode")),
	)

	It("a PodDisruptionBudget closes while the new machine starts: the old one is not closed, that is told, and all is as before", func() {
		env.ExpectApplied(twoCores())
		t := lateMachine()
		began := env.Now()
		env.ExpectFault(test.Fault("slow", mckubev1alpha1.FaultSlowRegistration, test.StrikesNodePools("two"), test.Delay(8*time.Second)))
		t.begin()
		eventuallyOpening("ReplaceNode")
		env.ExpectApplied(test.PodDisruptionBudget("control", 0))
		Eventually(func() []string { return said("ReplaceNode") }).Should(ContainElement(ContainSubstring("may not be evicted")))
		t.end()
		eventuallyOver()
		Expect(phases(env.History(), "ReplaceNode")).To(HaveEach("RolledBack"))
		t.untouched(began)
	})

	It("it stays closed for longer than the new machine is waited for: that is undone and told, and the old one serves on", func() {
		env.ExpectControllerWith("--rt-pressure-node-timeout=40s")
		env.ExpectApplied(twoCores())
		t := lateMachine()
		env.ExpectFault(test.Fault("slow", mckubev1alpha1.FaultSlowRegistration, test.StrikesNodePools("two"), test.Delay(5*time.Second)))
		t.begin()
		eventuallyOpening("ReplaceNode")
		env.ExpectApplied(test.PodDisruptionBudget("control", 0))
		Eventually(func() []string { return phases(env.Recorded(), "ReplaceNode") }).Should(ContainElement("RolledBack"))
		Expect(said("ReplaceNode")).To(ContainElement(ContainSubstring("It took longer than 40s: pod default/control")))
		t.end()
		eventuallyOver()
		undisturbed(env.Now(), t.pods...)
		Expect(env.NodeClaimOnNode(t.node).DeletionTimestamp).To(BeNil())
	})

	DescribeTable("a node that is late may not be closed: that is waited for only so long, and told",
		func(kept string, forbid func() []func(*karpenterv1.NodePool)) {
			env.ExpectControllerWith("--rt-pressure-patience=4s")
			env.ExpectApplied(twoCores(append(forbid(), atMost(1))...))
			t := lateMachine()
			began := env.Now()
			t.begin()
			Eventually(func() []string { return phases(env.Recorded(), "ReplaceNode") }).Should(ContainElement(BeElementOf("Expired", "RolledBack")))
			Expect(said("ReplaceNode")).To(ContainElement(ContainSubstring(kept)))
			env.EventuallyEvent(&corev1.Node{ObjectMeta: nodeMeta(t.node)}, "PressureUnanswered", "ReplaceNode")
			t.end()
			eventuallyOver()
			Expect(env.History().Disrupted()).To(BeEmpty())
			t.untouched(began)
		},
		Entry("the budget for it is zero", "NodePoolBudget", func() []func(*karpenterv1.NodePool) {
			return []func(*karpenterv1.NodePool){test.Budgets(test.Budget("0", "RTPressure"))}
		}),
		Entry("a PodDisruptionBudget allows nothing", "PodDisruptionBudget", func() []func(*karpenterv1.NodePool) {
			env.ExpectApplied(test.PodDisruptionBudget("control", 0))
			return nil
		}),
	)
})

// said is what actions of a kind ever waited for, and said in their messages.
func said(kind mckubev1alpha1.ActionKind) []string {
	var list []string
	for _, v := range env.History().Versions() {
		if a, ok := v.Object.(*mckubev1alpha1.RTAction); ok && a.Spec.Kind == kind {
			list = append(list, a.Status.WaitingFor, a.Status.Message)
		}
	}
	return list
}

// eventuallyRunning expects pods in the place of those, as many of each workload, on nodes that are no longer pressed.
func eventuallyRunning(gone []*corev1.Pod) {
	GinkgoHelper()
	count := map[string]int{}
	for _, pod := range gone {
		count[pod.Labels[test.Label]]++
	}
	for workload, n := range count {
		env.EventuallyPlaced(workload, n)
	}
}
