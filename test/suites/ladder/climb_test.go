package ladder_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("The whole climb:", func() {
	// On core 1 of the first machine, in percent: peer 35, large 12, small 11, bare 10, control 20; on core 2: 72. The
	// second machine has 5 left on its core 1 and 30 on its core 2.
	It("a container that needs its core nearly for itself gets it, one rung after the other, and all of it is given back that can be", func() {
		env.ExpectApplied(twoCores(atMost(3)))
		peer := replicated(test.McKube("peer", 35, test.Critical(high)), 1)[0]
		large := replicated(test.McKube("large", 12), 1)[0]
		small := replicated(test.McKube("small", 11), 1)[0]
		bare := governed(test.McKube("bare", 10))
		control := governed(test.McKube("control", 20, test.Critical(high)))
		big := governed(test.McKube("big", 72, test.Critical(high)))
		full := governed(test.McKube("full", 85, test.Critical(high)))
		half := governed(test.McKube("half", 60, test.Critical(high)))
		for _, p := range []int32{peer.Core, large.Core, small.Core, bare.Core, control.Core} {
			Expect(p).To(BeEquivalentTo(1))
		}
		Expect(big.Node).To(Equal(control.Node))
		Expect([]string{full.Node, half.Node}).To(HaveEach(Not(Equal(control.Node))))
		began := env.Now()

		play(control, "0s overrun-while-crowded 50")
		eventuallyPressed(control.Node)
		env.EventuallyGone(bare.Pod)
		Eventually(func() []string { return answers(env.Recorded()) }).
			Should(Equal([]string{"Rearrange", "Migrate", "Preempt", "OpenNode", "Migrate"}))
		Expect(env.EventuallyPlace("large").Core).To(BeEquivalentTo(2))
		Expect(env.EventuallyPlace("small").Node).To(Equal(full.Node))
		Expect(env.EventuallyPlace("peer").Node).NotTo(BeElementOf(control.Node, full.Node))
		undisturbed(began, control.Pod, large.Pod, big.Pod, full.Pod, half.Pod)

		play(control, "")
		eventuallyOver()
		Expect(env.EventuallyPlace("large").Core).To(BeEquivalentTo(1), "what was moved on its node comes back")
		expectChain(control.Node, control.Pod)
		env.EventuallyNodes(3)
	})
})

// expectChain expects the Events about the node to tell the story in order, each answer with the name of its action.
func expectChain(node string, sufferer *corev1.Pod) {
	GinkgoHelper()
	var told []string
	for _, e := range env.History().Events("", node) {
		if strings.HasPrefix(e.Reason, "Pressure") {
			told = append(told, e.Reason)
		}
	}
	Expect(lo.Uniq(told)).To(Equal([]string{"PressureBegan", "PressureAnswered", "PressureEased", "PressureGivenBack", "PressureEnded"}))
	for _, a := range actions(env.History()) {
		if a.Spec.Reason == "RTPressure" {
			env.EventuallyEvent(sufferer, "PressureAnswered", a.Name)
			Expect(a.Spec.Cause).To(HavePrefix("pressure/"))
			Expect(a.Status.Phase).To(Equal(mckubev1alpha1.ActionPhase("Succeeded")))
		}
	}
}
