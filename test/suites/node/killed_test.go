package node_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("An agent that is killed", Serial, func() {
	BeforeEach(func() { env.NodeAgent.ExpectRunning() })

	It("leaves the fast path at work, and tells what happened when it is back", func() {
		m, p := promised("untold"), loaded("untold")
		group := governed(m, p)
		expectKept(p, "app", group)
		env.NodeAgent.Agent.Kill9()
		overrun(group)
		eventuallyBudget(group, high)
		behave(group)
		eventuallyBudget(group, low)
		env.NodeAgent.ExpectRunning()
		eventuallyOverrun(m)
		eventuallyReady(m)
	})

	// The moments are spread over a raise and a recovery: before the budget ends, when it is written, when it is
	// reported, while it is kept, when it is given back.
	It("with its fast path, at whatever moment, finds the kernel as it should be when it is back", func() {
		m, p := promised("survivor"), loaded("survivor")
		group := governed(m, p)
		for _, after := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond} {
			By("killing both " + after.String() + " after the overrun began")
			overrun(group)
			time.Sleep(after) // the moment is the point of the scenario
			env.NodeAgent.FastPath.Kill9()
			env.NodeAgent.Agent.Kill9()
			Expect(cores(group)).NotTo(BeEmpty())
			Expect(budget(group)).To(BeElementOf(int64(low), int64(high)))
			env.NodeAgent.ExpectRunning()
			eventuallyBudget(group, high)
			behave(group)
			eventuallyBudget(group, low)
			expectKept(p, "app", group)
			Expect(realtimeThreads(group)).To(HaveLen(1), "the policy of its thread survives")
		}
		By("killing both while the budget is given back")
		overrun(group)
		eventuallyBudget(group, high)
		behave(group)
		env.NodeAgent.FastPath.Kill9()
		env.NodeAgent.ExpectRunning()
		eventuallyBudget(group, low)
		eventuallyReady(m)
		By("deleting the pod: nothing is leaked")
		env.ExpectDeleted(p)
		Eventually(func() map[string]int64 { return budgets(env.Node.Group()) }).Should(BeEmpty())
	})

	It("while its container goes leaves nothing", func() {
		m, p := promised("leaving"), loaded("leaving")
		group := governed(m, p)
		overrun(group)
		eventuallyBudget(group, high)
		env.NodeAgent.FastPath.Kill9()
		env.ExpectDeleted(p, m)
		env.NodeAgent.ExpectRunning()
		Eventually(func() map[string]int64 { return budgets(env.Node.Group()) }).Should(BeEmpty())
	})
})

var _ = Describe("Uninstalling the agent", Serial, func() {
	BeforeEach(func() { env.NodeAgent.ExpectRunning() })

	// A pod with a claim ends only when its driver has let the claim go.
	AfterEach(func() { env.NodeAgent.ExpectRunning() })

	It("begins with the McKubes: a container without one is as it was, and runs on", func() {
		before := cores(governedNothing("ordinary"))
		m, p := promised("let-go"), loaded("let-go")
		group := governed(m, p)
		expectKept(p, "app", group)
		env.ExpectDeleted(m)
		Eventually(func() map[string]int64 { return budgets(env.Node.Group()) }).Should(BeEmpty())
		Expect(realtimeThreads(group)).To(BeEmpty(), "without a budget a real-time thread would stand still")
		Eventually(func() string { return cores(group) }).Should(Equal(before))
		Expect(processes(group)).To(HaveLen(1))
	})

	It("restores the control groups of containers that run on, and of every level above", func() {
		plain := governedNothing("plain")
		before := cores(plain)
		m, p := promised("left-behind"), loaded("left-behind")
		group := governed(m, p)
		expectKept(p, "app", group)
		env.NodeAgent.Agent.ExpectStopped()
		Expect(env.NodeAgent.Client.Restore(env)).To(Succeed())
		Expect(budgets(env.Node.Group())).To(BeEmpty())
		Expect(realtimeThreads(group)).To(BeEmpty(), "without a budget a real-time thread would stand still")
		Expect(cores(group)).To(Equal(before))
		Expect(processes(group)).To(HaveLen(1), "the container runs on")
		env.NodeAgent.FastPath.ExpectStopped()
		Expect(budgets(env.Node.Group())).To(BeEmpty())
	})
})
