package node_test

import (
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// What the containers of these scenarios are promised and what they do, in microseconds of a period. An
// overrun is more than the low budget and less than the high one.
const (
	period = 100_000
	low    = 12_000
	high   = 24_000
	work   = 6 * time.Millisecond
	more   = 18 * time.Millisecond
)

// promised is a McKube of criticality High for the pod of its name.
func promised(name string, changes ...test.McKubeChange) *mcoperatorv1.McKube {
	m := test.McKube(name, 1, append([]test.McKubeChange{test.Critical(mcoperatorv1.CriticalityHigh), test.RecoversAfter(time.Second)}, changes...)...)
	m.Spec.RTSettings = &mcoperatorv1.RTSettings{Period: period, RuntimeLow: low, RuntimeHi: high}
	return m
}

// loaded is a pod whose first container works in every period, with the right to be real-time.
func loaded(name string, changes ...func(*test.PodTemplate)) *corev1.Pod {
	return test.RTPod(name, append(changes, onNode, func(t *test.PodTemplate) {
		c := &t.Spec.Containers[0]
		c.Args = []string{"--period=" + (period * time.Microsecond).String(), "--work=" + work.String(), "--overrun=" + more.String()}
		c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_NICE"}}}
	})...)
}

// governed applies the McKube and its pod, and waits until the kernel keeps the promise. It returns the
// group of the pod's first container.
func governed(m *mcoperatorv1.McKube, p *corev1.Pod) string {
	GinkgoHelper()
	env.ExpectApplied(m, p)
	eventuallyRunning(p)
	eventuallyReady(m)
	group := groupOf(p, p.Spec.Containers[0].Name)
	Eventually(func() []int { return realtimeThreads(group) }).Should(HaveLen(1), "real-time threads of %s", p.Name)
	return group
}

// eventuallyReady expects the McKube to be admitted, placed and configured.
func eventuallyReady(m *mcoperatorv1.McKube) {
	GinkgoHelper()
	env.EventuallyTrue(m, mcoperatorv1.ConditionReady)
}

// server is the container's entry in the status of the RTNode, and the one in its spec.
func server(p *corev1.Pod, container string) (mckubev1alpha1.RTServer, mckubev1alpha1.RTServerStatus) {
	GinkgoHelper()
	rt := env.RTNode(env.Node.Name())
	var want mckubev1alpha1.RTServer
	for _, s := range rt.Spec.Servers {
		if s.PodUID == p.UID && s.Container == container {
			want = s
		}
	}
	for _, s := range rt.Status.Servers {
		if s.PodUID == p.UID && s.Container == container {
			return want, s
		}
	}
	Fail("RTNode tells nothing of " + p.Name + "/" + container)
	return want, mckubev1alpha1.RTServerStatus{}
}

// expectKept expects the kernel to give the container its low budget on the core that the controller
// chose, and the RTNode to say so.
func expectKept(p *corev1.Pod, container, group string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		want, told := server(p, container)
		g.Expect(want.Cores).To(HaveLen(1))
		g.Expect(told.Cores).To(Equal(want.Cores))
		g.Expect(cores(group)).To(Equal(itoa(want.Cores[0])))
		g.Expect(kernelFile("cpu", group, "cpu.rt_period_us")).To(Equal(itoa(want.PeriodUs)))
		g.Expect(budget(group)).To(Equal(want.BudgetLowUs))
		g.Expect(told.BudgetUs).To(Equal(want.BudgetLowUs))
		g.Expect(told.Level).To(Equal(mckubev1alpha1.LevelLow))
	}).Should(Succeed(), "%s/%s", p.Name, container)
}

// eventuallyLevel expects the McKube's status to tell the level.
func eventuallyLevel(m *mcoperatorv1.McKube, level string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(m.Status.CurrentRuntime).To(Equal(level))
	}).Should(Succeed(), "McKube %s at level %s", m.Name, level)
}

// eventuallyOverrun expects the McKube's status to tell of an overrun.
func eventuallyOverrun(m *mcoperatorv1.McKube) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(m.Status.Overruns).To(BeNumerically(">=", 1))
	}).Should(Succeed(), "McKube %s should tell of its overrun", m.Name)
}

func eventuallyBudget(group string, us int64) {
	GinkgoHelper()
	Eventually(func() int64 { return budget(group) }).WithPolling(10*time.Millisecond).Should(Equal(us), "budget of %s", group)
}

var _ = Describe("Real-time containers of a real node", Serial, func() {
	BeforeEach(func() { env.NodeAgent.ExpectRunning() })

	AfterEach(func() {
		env.NodeAgent.FastPath.ExpectAlive()
		env.NodeAgent.Agent.ExpectAlive()
	})

	It("have their budget on their core, in pods of every class of service", func() {
		pods := map[corev1.PodQOSClass]*corev1.Pod{
			corev1.PodQOSBestEffort: loaded("rt-best-effort", bestEffort),
			corev1.PodQOSBurstable:  loaded("rt-burstable", test.WithContainer("side"), burstable),
			corev1.PodQOSGuaranteed: loaded("rt-guaranteed", guaranteed),
		}
		for class, p := range pods {
			m := promised(p.Name, test.GovernsContainer("app"))
			m.Spec.RTSettings.RuntimeHi = low
			group := governed(m, p)
			Expect(p.Status.QOSClass).To(Equal(class))
			expectKept(p, "app", group)
		}
		side := groupOf(pods[corev1.PodQOSBurstable], "side")
		Expect(budget(side)).To(BeZero(), "the container that nobody governs has no budget")
	})

	It("are raised on the node as soon as they overrun, and recover", func() {
		m, p := promised("overrunning"), loaded("overrunning")
		group := governed(m, p)
		expectKept(p, "app", group)
		overrun(group)
		eventuallyBudget(group, high)
		eventuallyLevel(m, mckubev1alpha1.LevelHigh)
		env.EventuallyTrue(m, mcoperatorv1.ConditionEscalated)
		eventuallyOverrun(m)
		Expect(m.Status.LastOverrunTime).NotTo(BeNil())
		behave(group)
		eventuallyBudget(group, low)
		eventuallyLevel(m, mckubev1alpha1.LevelLow)
		env.EventuallyFalse(m, mcoperatorv1.ConditionEscalated, "", "")
		expectKept(p, "app", group)
	})

	It("are raised and recover while the API server is away, and what happened is told afterwards", func() {
		m, p := promised("alone"), loaded("alone")
		group := governed(m, p)
		expectKept(p, "app", group)
		env.WithoutAPIServer(func() {
			overrun(group)
			eventuallyBudget(group, high)
			behave(group)
			eventuallyBudget(group, low)
		})
		eventuallyOverrun(m)
		eventuallyReady(m)
		expectKept(p, "app", group)
	})

	It("keep their budget when the kubelet is started again, and the node takes further ones", func() {
		m, p := promised("steady"), loaded("steady")
		group := governed(m, p)
		expectKept(p, "app", group)
		id := containerID(p, "app")
		Expect(env.Node.StopKubelet()).To(Succeed())
		overrun(group)
		eventuallyBudget(group, high)
		Expect(env.Node.StartKubelet(env)).To(Succeed())
		behave(group)
		eventuallyBudget(group, low)
		eventuallyRunning(p)
		Expect(containerID(p, "app")).To(Equal(id))
		expectKept(p, "app", group)
		// The new kubelet has deleted the node's ResourceSlices; the agent publishes them again.
		next := loaded("next")
		expectKept(next, "app", governed(promised("next"), next))
	})

	It("that die are governed again as soon as the kubelet has made them anew", func() {
		m, p := promised("dying"), loaded("dying")
		former := governed(m, p)
		overrun(former)
		eventuallyBudget(former, high)
		signal(former, syscall.SIGKILL)
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Status.ContainerStatuses[0].RestartCount).To(BeNumerically(">=", 1))
			g.Expect(p.Status.ContainerStatuses[0].State.Running).NotTo(BeNil())
		}).Should(Succeed())
		group := groupOf(p, "app")
		Expect(group).NotTo(Equal(former))
		Eventually(func() []int { return realtimeThreads(group) }).Should(HaveLen(1))
		eventuallyBudget(group, low)
		expectKept(p, "app", group)
		eventuallyReady(m)
	})
})
