package node_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

// capabilities are those that the container's program has in effect, as the kernel prints them.
func capabilities(p *corev1.Pod, container string) string {
	GinkgoHelper()
	pids := processes(groupOf(p, container))
	if len(pids) == 0 { // the fast path has left its group, which has no real-time budget
		pids = []int{statusPID(container)}
	}
	status, err := os.ReadFile(machine.Proc(fmt.Sprint(pids[0]), "status"))
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strings.TrimSpace(value)
		}
	}
	Fail("the kernel tells no capabilities of " + container)
	return ""
}

// statusPID is the process of that name whose parent is not this one: the one in the pod.
func statusPID(name string) int {
	GinkgoHelper()
	entries, err := os.ReadDir(machine.Proc())
	Expect(err).NotTo(HaveOccurred())
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		line, err := os.ReadFile(machine.Proc(e.Name(), "cmdline"))
		if err == nil && strings.HasPrefix(string(line), "/"+name+"\x00") {
			return pid
		}
	}
	Fail("no process of " + name)
	return 0
}

var _ = Describe("The agent's pod", Serial, func() {
	AfterEach(func() {
		env.ExpectNoAgentPod()
		env.NodeAgent.ExpectRunning()
	})

	It("governs from the chart's DaemonSet, with four capabilities and not privileged, and after it was killed", func() {
		agent := env.ExpectAgentPod()
		// BPF, PERFMON, SYS_NICE and IPC_LOCK; none.
		Expect(capabilities(agent, "fastpath")).To(Equal("000000c000804000"))
		Expect(capabilities(agent, "agent")).To(Equal("0000000000000000"))
		// Which is enough to checkpoint and restore. That the version of CRIU is not known shows that this agent has said so.
		Eventually(func(g Gomega) {
			can := env.RTNode(env.Node.Name()).Status.Checkpoint
			g.Expect(can).NotTo(BeNil())
			g.Expect(*can).To(And(HaveField("Driver", "cri"), HaveField("Checkpoints", true), HaveField("Restores", true), HaveField("CRIU", ""), HaveField("Message", "")))
		}).Should(Succeed())

		m, p := promised("by-pod"), loaded("by-pod")
		group := governed(m, p)
		expectKept(p, "app", group)
		overrun(group)
		eventuallyBudget(group, high)
		env.EventuallyTrue(m, mcoperatorv1.ConditionEscalated)

		Expect(syscall.Kill(statusPID("fastpath"), syscall.SIGKILL)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(agent), agent)).To(Succeed())
			for _, s := range agent.Status.ContainerStatuses {
				g.Expect(s.Ready).To(BeTrue(), "container %s", s.Name)
				g.Expect(s.Name != "fastpath" || s.RestartCount > 0).To(BeTrue(), "the kubelet should start the fast path again")
			}
		}).Should(Succeed())
		eventuallyBudget(group, high)
		behave(group)
		eventuallyBudget(group, low)
		expectKept(p, "app", group)
		env.ExpectDeleted(p)
		env.EventuallyGone(p)
		Eventually(func() map[string]int64 { return budgets(env.Node.Group()) }).Should(BeEmpty())
	})
})
