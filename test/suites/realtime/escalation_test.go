package realtime_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// recovery is short, so that scenarios are.
const recovery = 3 * time.Second

// eventuallyAt expects the McKube to be at the level, by its status and by its pod's annotation.
func eventuallyAt(m *mcoperatorv1.McKube, level string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(m), m)).To(Succeed())
		g.Expect(m.Status.CurrentRuntime).To(Equal(level))
	}).Should(Succeed(), "McKube %s at level %s", m.Name, level)
	eventuallyPod(m.Spec.Podname).Should(HaveField("Annotations", HaveKeyWithValue(mcoperatorv1.AnnotationCurrent, level)))
}

// setBusy marks the node as the MC-Kube controller's CPU agent does.
func setBusy(node, busy string) {
	GinkgoHelper()
	n := &corev1.Node{}
	n.Name = node
	environment.ExpectChanged(env, n, func(n *corev1.Node) {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[mcoperatorv1.AnnotationCPUBusy] = busy
	})
}

var _ = Describe("Escalation", func() {
	It("follows an overrun up to runtime_hi, is reported, and goes back to runtime_low", func() {
		m := test.McKube("control", 30, test.Critical(high), test.MayRiseTo(50), test.RecoversAfter(recovery))
		env.ExpectApplied(twoCores())
		place := governed(m)
		eventuallyAt(m, "low")
		play(place, "0s overrun 3")
		eventuallyAt(m, "hi")
		env.EventuallyTrue(m, mcoperatorv1.ConditionEscalated)
		Expect(m.Status.LastOverrunTime).NotTo(BeNil())
		Expect(m.Status.Overruns).To(BeNumerically(">=", 1))
		eventuallyAt(m, "low")
		env.EventuallyFalse(m, mcoperatorv1.ConditionEscalated, "", "")
		Expect(levels(env.History(), place.Pod.UID)).To(Equal([]string{"low", "hi", "low"}))
	})

	It("happens to a container of criticality Low whose core has room beside the raises of all others", func() {
		m := test.McKube("batch", 30, test.MayRiseTo(50), test.RecoversAfter(recovery))
		env.ExpectApplied(twoCores())
		place := governed(m)
		play(place, "0s overrun 5")
		eventuallyAt(m, "hi")
		eventuallyAt(m, "low")
		Expect(levels(env.History(), place.Pod.UID)).To(Equal([]string{"low", "hi", "low"}))
	})

	It("never happens to a container of criticality Low for whose high budget no core has room, which is throttled instead", func() {
		m := test.McKube("batch", 30, test.MayRiseTo(95))
		env.ExpectApplied(twoCores())
		place := governed(m)
		play(place, "0s overrun 5")
		Eventually(func(g Gomega) int64 {
			g.Expect(env.Client.Get(env, keyOf(m), m)).To(Succeed())
			return m.Status.Overruns
		}).Should(BeNumerically(">=", 5))
		Expect(levels(env.History(), place.Pod.UID)).To(Equal([]string{"low"}))
	})

	It("follows annotation isCpuBusy of the node, and is taken back when the node has been calm for recoveryDelay", func() {
		env.ExpectApplied(twoCores())
		strong := test.McKube("strong", 20, test.Critical(high), test.MayRiseTo(40), test.RecoversAfter(recovery))
		mid := test.McKube("mid", 20, test.Critical(middle), test.MayRiseTo(40), test.RecoversAfter(recovery))
		weak := test.McKube("weak", 20, test.MayRiseTo(95), test.RecoversAfter(recovery)) // for which no core has room
		place := governed(strong)
		governed(mid)
		governed(weak)
		setBusy(place.Node, "true")
		eventuallyAt(strong, "hi")
		eventuallyAt(mid, "hi")
		eventuallyAt(weak, "low")
		setBusy(place.Node, "false")
		eventuallyAt(strong, "low")
		eventuallyAt(mid, "low")
	})

	It("follows the pressure that the node's agent reports, and its end", func() {
		m := test.McKube("control", 20, test.Critical(high), test.MayRiseTo(40), test.RecoversAfter(recovery))
		env.ExpectApplied(twoCores())
		place := governed(m)
		playOnNode(place.Node, "0s pressure 97; 8s pressure 20")
		eventuallyAt(m, "hi")
		eventuallyAt(m, "low")
		Expect(levels(env.History(), place.Pod.UID)).To(Equal([]string{"low", "hi", "low"}))
	})
})
