package inventory_test

import (
	"os/exec"
	"path/filepath"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/nodeclass"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// pool is a NodePool of all machines.
func pool(changes ...func(*karpenterv1.NodePool)) *karpenterv1.NodePool {
	return test.NodePool("edge", append([]func(*karpenterv1.NodePool){test.FromInventory()}, changes...)...)
}

// inUse brings up one machine with a pod of workload web on it, and returns its NodeClaim.
func inUse(name string) *karpenterv1.NodeClaim {
	GinkgoHelper()
	env.ExpectApplied(machine(name), pool(), test.Deployment("web", 1, "1"))
	Expect(environment.NodesOf(env.EventuallyPodsBound("web", 1))).To(Equal([]string{name}))
	phase(name, "InUse")
	return env.NodeClaimOf(env.EventuallyNodes(1)[0])
}

// eventuallyCapacity expects the node class to say whether a machine is free.
func eventuallyCapacity(reason, message string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		class := test.InventoryNodeClass()
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(class), class)).To(Succeed())
		c := class.StatusConditions(status.WithObservedOnly()).Get(nodeclass.ConditionCapacityAvailable)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Reason).To(Equal(reason))
		g.Expect(c.Message).To(ContainSubstring(message))
	}).Should(Succeed())
}

var _ = Describe("A machine", func() {
	It("is switched on for a pod, and off when nobody needs it", func() {
		env.ExpectApplied(machine("edge-1"))
		phase("edge-1", "Free")
		Expect(power("edge-1")).To(Equal("off"))

		env.ExpectApplied(pool(), test.Deployment("web", 1, "1"))
		pods := env.EventuallyPodsBound("web", 1)
		Expect(pods[0].Spec.NodeName).To(Equal("edge-1"))
		m := phase("edge-1", "InUse")
		nodes := env.EventuallyNodes(1)
		Expect(nodes[0].Spec.ProviderID).To(Equal("inventory://edge-1"))
		claim := env.NodeClaimOf(nodes[0])
		Expect(m.Status.Claim.UID).To(Equal(claim.UID))
		Expect(power("edge-1")).To(Equal("on"))

		env.ExpectDeleted(test.Deployment("web", 1, "1"), claim)
		env.EventuallyGone(claim)
		phase("edge-1", "Free")
		Expect(power("edge-1")).To(Equal("off"))
		Expect(calls("edge-1", "on")).To(Equal(1))
	})

	It("is the one that a pod selects, and no node is planned beyond those that there are", func() {
		env.ExpectApplied(machine("edge-1"), machine("edge-2", inRack("a2")), pool(),
			test.Deployment("picky", 1, "1", test.OnNodes(rack, "a2")), test.Deployment("web", 3, "2500m"))
		Expect(environment.NodesOf(env.EventuallyPodsBound("picky", 1))).To(Equal([]string{"edge-2"}))
		eventuallyCapacity(nodeclass.ReasonInventoryFull, "of 2 machines 0 are free, 2 claimed and 0 unavailable")
		env.EventuallyNodes(2)
		Expect(env.History().Created()).To(HaveLen(2), "NodeClaims: the third pod must not have one")

		env.ExpectApplied(machine("edge-3"))
		env.EventuallyPodsBound("web", 3)
		env.EventuallyNodes(3)
	})

	It("that never joins is quarantined and switched off, and the next one is taken", func() {
		given("edge-1", "dead")
		env.ExpectApplied(machine("edge-1", test.BootTimeout(4*time.Second)), machine("edge-2", costing("0.5")))
		phase("edge-1", "Free")
		phase("edge-2", "Free")
		env.ExpectApplied(pool(), test.Deployment("web", 1, "1"))
		Expect(environment.NodesOf(env.EventuallyPodsBound("web", 1))).To(Equal([]string{"edge-2"}))
		m := eventually("edge-1", func(g Gomega, m *mckubev1alpha1.InventoryMachine) {
			g.Expect(m.Status.Claim).To(BeNil())
		})
		Expect(m.Status.Failures).To(BeNumerically(">=", 1))
		Expect(m.Status.LastFailure).To(ContainSubstring(`no Ready Node "edge-1" within 4s`))
		Expect(power("edge-1")).To(Equal("off"))
		env.EventuallyEvent(m, "MachineFailed", "quarantined")
	})

	It("that is edited is replaced by itself when there is no other: ended first, then started anew", func() {
		before := inUse("edge-1")
		environment.ExpectChanged(env, machine("edge-1"), inRack("a7"))
		Eventually(func() bool { return power("edge-1") == "off" }).Should(BeTrue(), "the machine should go off")
		env.EventuallyGone(before)
		env.EventuallyPodsBound("web", 1)
		node := env.EventuallyNodes(1)[0]
		Expect(node.Name).To(Equal("edge-1"))
		Expect(node.Labels).To(HaveKeyWithValue(rack, "a7"))
		Expect(env.History().DisruptionReason(before.Name)).To(Equal(string(karpenterv1.DisruptionReasonDrifted)))
		Expect(calls("edge-1", "on")).To(Equal(2))
	})

	It("that is deleted while in use is drained and switched off before it goes", func() {
		claim := inUse("edge-1")
		env.ExpectDeleted(machine("edge-1"))
		env.EventuallyGone(claim, machine("edge-1"))
		Expect(power("edge-1")).To(Equal("off"))
	})

	It("goes off with its NodePool", func() {
		claim := inUse("edge-1")
		env.ExpectDeleted(pool())
		env.EventuallyGone(claim)
		phase("edge-1", "Free")
		Expect(power("edge-1")).To(Equal("off"))
	})

	It("that cannot be switched off holds its NodeClaim until someone vouches for it", func() {
		claim := inUse("edge-1")
		given("edge-1", "stuck")
		env.ExpectDeleted(claim)
		env.EventuallyEvent(claim, "PowerOffFailed", "cannot be switched off")
		phase("edge-1", "Stopping")
		Expect(env.Client.Get(env, client.ObjectKeyFromObject(claim), claim)).To(Succeed())

		environment.ExpectChanged(env, machine("edge-1"), func(m *mckubev1alpha1.InventoryMachine) {
			m.Spec.Availability = mckubev1alpha1.MachineOutOfService
		})
		env.EventuallyGone(claim)
		phase("edge-1", "OutOfService")
	})

	It("whose kubelet is unwell is rebooted, and keeps its node", func() {
		claim := inUse("edge-1")
		unwell("edge-1")
		Eventually(func() int { return calls("edge-1", "restart") }).Should(Equal(1), "the machine should be rebooted")
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
			rebooting := claim.StatusConditions().Get(karpenterv1.ConditionTypeRebooting)
			g.Expect(rebooting).NotTo(BeNil())
			g.Expect(rebooting.Reason).To(Equal(karpenterv1.RebootReasonSucceeded), "%s", rebooting.Message)
		}).Should(Succeed())
		Expect(env.EventuallyNodes(1)[0].Name).To(Equal("edge-1"))
		Expect(env.History().Created()).To(HaveLen(1))
		Expect(calls("edge-1", "off")).To(BeZero())
	})

	It("that has joined by hand is adopted with what runs on it", func() {
		Expect(exec.Command(filepath.Join(programs, "machine"), "on", "edge-1", states, env.Plane.Kubeconfig()).Run()).To(Succeed())
		byHand("edge-1")
		env.ExpectApplied(test.Deployment("web", 1, "1"))
		before := env.EventuallyPodsBound("web", 1)

		env.ExpectApplied(machine("edge-1"))
		phase("edge-1", "JoinedByHand")
		env.ExpectApplied(pool())
		environment.ExpectChanged(env, machine("edge-1"), test.AdoptInto("edge"))
		m := phase("edge-1", "InUse")
		Expect(m.Status.Claim.Adopted).To(BeTrue())
		node := env.EventuallyNodes(1)[0]
		Expect(node.Labels).To(HaveKeyWithValue(karpenterv1.NodePoolLabelKey, "edge"))
		Expect(node.OwnerReferences).To(ContainElement(HaveField("Name", "edge-edge-1")))
		after := env.EventuallyPodsBound("web", 1)
		Expect(after[0].UID).To(Equal(before[0].UID), "the pod should have stayed")
		Expect(calls("edge-1", "on")).To(Equal(1), "by hand")
		Expect(calls("edge-1", "restart") + calls("edge-1", "off")).To(BeZero())

		claim := env.NodeClaimOf(node)
		env.ExpectDeleted(test.Deployment("web", 1, "1"), claim)
		env.EventuallyGone(claim)
		phase("edge-1", "Free")
		Expect(power("edge-1")).To(Equal("off"))
	})
})

var _ = Describe("A kill of the controller", func() {
	It("between the claim and the power is made good: one NodeClaim, one machine, switched on once", func() {
		env.ExpectApplied(machine("edge-1"), machine("edge-2"))
		phase("edge-1", "Free")
		phase("edge-2", "Free")
		mend := given("edge-1", "hung")
		mendOther := given("edge-2", "hung")
		env.ExpectApplied(pool(), test.Deployment("web", 1, "1"))
		eventuallyCapacity(nodeclass.ReasonMachinesFree, "1 claimed")
		env.Controller.Kill9()
		mend()
		mendOther()
		Expect(env.Controller.Start(env, env.Controller.Flags()...)).To(Succeed())
		env.EventuallyPodsBound("web", 1)
		env.EventuallyNodes(1)
		Expect(env.History().Created()).To(HaveLen(1))
		Expect(calls("edge-1", "on") + calls("edge-2", "on")).To(Equal(1))
	})

	It("between the power and the release is made good, and the machine is free again", func() {
		claim := inUse("edge-1")
		mend := given("edge-1", "stuck")
		env.ExpectDeleted(test.Deployment("web", 1, "1"), claim)
		phase("edge-1", "Stopping")
		env.Controller.Kill9()
		mend()
		Expect(env.Controller.Start(env, env.Controller.Flags()...)).To(Succeed())
		env.EventuallyGone(claim)
		phase("edge-1", "Free")
		Expect(power("edge-1")).To(Equal("off"))
	})
})
