package migration_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// longName is a name of so many characters that begins with a word.
func longName(word string, length int) string {
	return word + "-" + strings.Repeat("x", length-len(word)-1)
}

// longNamed applies a pod and its McKube with a name of 240 characters, of which a word is the label of its workload.
func longNamed(word string, share int64, criticality mcoperatorv1.Criticality) environment.Place {
	GinkgoHelper()
	m := test.McKube(longName(word, 240), share, test.Critical(criticality), test.GovernsWorkload(word))
	env.ExpectApplied(m, test.RTPod(m.Name, func(t *test.PodTemplate) { t.Labels[test.Label] = word }))
	return env.EventuallyPlace(word)
}

var _ = Describe("Names of full length", func() {
	It("go through admission, migration, preemption and the command line: a NodePool of 63 characters, all else of 240", func() {
		nodes := twoNodes(func(p *karpenterv1.NodePool) { p.Name = longName("two", 63) }, test.Limits(corev1.ResourceCPU, "6"))
		first := longNamed("first", 70, mcoperatorv1.CriticalityMiddle)
		to := other(nodes, first.Pod)
		end := migrated(test.PodMigration(longName("move", 240), first.Pod, test.To(to), test.By(mckubev1alpha1.StrategyRestart)))
		Expect(end.Status.Target.Node).To(Equal(to))
		Expect(env.EventuallyPlace("first").Node).To(Equal(to))

		var weak []*corev1.Pod
		for _, word := range []string{"weak-0", "weak-1", "weak-2"} { // the four cores are full with them
			weak = append(weak, longNamed(word, 75, mcoperatorv1.CriticalityLow).Pod)
		}
		strong := longNamed("strong", 80, mcoperatorv1.CriticalityHigh).Pod
		Eventually(func() string { return env.ExpectCommand("queue") }).Should(MatchRegexp(`preempt-[0-9a-f]+-1 .*strong-x+ .*Succeeded`))
		Expect(env.ExpectCommand("explain", "pod", strong.Name)).To(ContainSubstring(strong.Name))
		gone := 0
		for _, p := range weak {
			if len(env.Pods(p.Labels[test.Label])) == 0 {
				gone++
			}
		}
		Expect(gone).To(Equal(1), "one made room")
		nothingLeft()
	})
})
