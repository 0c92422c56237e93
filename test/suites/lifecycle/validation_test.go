package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// underutilised brings up one c-8x whose only pod fits on the smallest type, waits until the
// controller has decided to replace it and now waits before it acts, and returns it.
func underutilised() (*karpenterv1.NodePool, *corev1.Node, *corev1.Pod) {
	GinkgoHelper()
	pool := test.NodePool("general", test.InstanceTypes("c-8x-amd64-linux"))
	env.ExpectApplied(pool, test.Deployment("web", 1, "500m"))
	env.EventuallyPodsBound("web", 1)
	node := env.EventuallyNodes(1)[0]
	environment.ExpectChanged(env, pool, test.Families("c"), test.Requires(corev1.LabelInstanceTypeStable))
	consolidate(pool, karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized)
	env.EventuallyEvent(node, "ConsolidationCandidate", "savings")
	// The first pod may have been bound before the controller manager knew that the node's taint had gone, which evicts it then.
	return pool, node, env.EventuallyPodsBound("web", 1)[0]
}

var _ = Describe("Validation before disruption", func() {
	It("gives up a replacement when pods arrive that the smaller machine could not hold", func() {
		_, node, _ := underutilised()
		env.ExpectApplied(test.Deployment("late", 1, "7"))
		late := env.EventuallyPodsBound("late", 1)[0]
		Expect(late.Spec.NodeName).To(Equal(node.Name))
		env.EventuallyEvent(node, "ConsolidationRejected", "Consolidation rejected")
		env.ExpectNoDisruption()
		Expect(env.History().Disrupted()).To(BeEmpty())
	})

	It("gives up a replacement when a pod comes to forbid it, and makes it once the pod allows it", func() {
		_, node, pod := underutilised()
		claim := env.NodeClaimOf(node)
		environment.ExpectChanged(env, pod, annotate(karpenterv1.DoNotDisruptAnnotationKey, "true"))
		env.EventuallyEvent(node, "ConsolidationRejected", "Consolidation rejected")
		env.ExpectNoDisruption()
		Expect(env.History().Disrupted()).To(BeEmpty())

		environment.ExpectChanged(env, pod, func(p *corev1.Pod) { delete(p.Annotations, karpenterv1.DoNotDisruptAnnotationKey) })
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonUnderutilized)
		env.EventuallyPodsBound("web", 1)
	})
})

func annotate(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}
