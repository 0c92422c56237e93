package node_test

import (
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
)

var _ = Describe("An RTNode that somebody deletes", Serial, func() {
	BeforeEach(func() { env.NodeAgent.ExpectRunning() })

	It("takes no budget, core or policy from the containers, and is made anew", func() {
		m, p := promised("undisturbed"), loaded("undisturbed")
		group := governed(m, p)
		expectKept(p, "app", group)
		core := cores(group)
		former := env.RTNode(env.Node.Name())
		Expect(env.Client.Delete(env, former)).To(Succeed())
		Consistently(func(g Gomega) {
			g.Expect(budget(group)).To(BeElementOf(int64(low), int64(high)), "a busy machine may have it raised")
			g.Expect(cores(group)).To(Equal(core))
			g.Expect(realtimeThreads(group)).To(HaveLen(1))
		}).WithTimeout(5*time.Second).WithPolling(20*time.Millisecond).Should(Succeed(), "the container keeps what it has")
		Eventually(func(g Gomega) {
			made := &mckubev1alpha1.RTNode{}
			g.Expect(env.Client.Get(env, client.ObjectKey{Name: env.Node.Name()}, made)).To(Succeed())
			g.Expect(made.UID).NotTo(Equal(former.UID))
		}).Should(Succeed())
		expectKept(p, "app", group)
		eventuallyReady(m)
		overrun(group)
		eventuallyBudget(group, high)
		behave(group)
		eventuallyBudget(group, low)
	})
})

var _ = Describe("How busy a real node is", Serial, func() {
	It("is in its annotations, by the rule that the agent is given", func() {
		env.NodeAgent.ExpectRunning()
		node := &corev1.Node{}
		annotation := func(g Gomega, name string) string {
			g.Expect(env.Client.Get(env, client.ObjectKey{Name: env.Node.Name()}, node)).To(Succeed())
			return node.Annotations[name]
		}
		Eventually(func(g Gomega) {
			g.Expect(annotation(g, mcoperatorv1.AnnotationCPUBusy)).To(Equal("false"))
			percent, err := strconv.Atoi(annotation(g, mcoperatorv1.AnnotationCPUUsage))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(percent).To(And(BeNumerically(">=", 0), BeNumerically("<=", 100)))
		}).Should(Succeed())

		env.NodeAgent.Agent.ExpectStopped()
		env.NodeAgent.Agent.ExpectStartedWith("--busy-percent=1", "--busy-after=1s")
		Eventually(func(g Gomega) {
			g.Expect(annotation(g, mcoperatorv1.AnnotationCPUBusy)).To(Equal("true"))
			seconds, err := strconv.Atoi(annotation(g, mcoperatorv1.AnnotationCPUOver90))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(seconds).To(BeNumerically(">=", 1))
			g.Expect(env.RTNode(env.Node.Name()).Status.Pressure.BusySince).NotTo(BeNil())
		}).Should(Succeed())
		env.NodeAgent.Agent.ExpectStopped()
		env.NodeAgent.ExpectRunning()
		Eventually(func(g Gomega) { g.Expect(annotation(g, mcoperatorv1.AnnotationCPUBusy)).To(Equal("false")) }).Should(Succeed())
	})
})
