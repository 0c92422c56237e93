package lifecycle_test

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// generation is a label that specs put on nodes only to change it.
const generation = "example.com/generation"

// occupied brings up n nodes of the pool, each with one small pod of the workload web that wants a
// node of its own, and returns the nodes' NodeClaims. kube-controller-manager may evict a pod that was bound before its taint eviction controller saw
// that Karpenter had removed the taint of a new node. The next pod, which must be apart from that one, gets a node more then. The empty node is deleted.
func occupied(pool *karpenterv1.NodePool, n int, changes ...func(*test.PodTemplate)) []*karpenterv1.NodeClaim {
	GinkgoHelper()
	env.ExpectApplied(pool, test.Deployment("web", int32(n), "500m", append(changes, test.ApartFromEachOther())...))
	Eventually(func(g Gomega) {
		pods := env.EventuallyPodsBound("web", n)
		claims := env.NodeClaims()
		if len(claims) > n && len(env.Recorded().Events("TaintManagerEviction", "")) > 0 {
			env.ExpectDeleted(withoutPods(claims, pods)...)
		}
		g.Expect(claims).To(HaveLen(n))
	}).Should(Succeed())
	env.EventuallyNodes(n)
	return env.NodeClaims()
}

// withoutPods are the NodeClaims of nodes that none of the pods is on.
func withoutPods(claims []*karpenterv1.NodeClaim, pods []*corev1.Pod) []client.Object {
	var out []client.Object
	nodes := environment.NodesOf(pods)
	for _, c := range claims {
		if !slices.Contains(nodes, c.Status.NodeName) {
			out = append(out, c)
		}
	}
	return out
}

// onePool is a pool of the smallest machines of which one may be disrupted at a time.
func onePool(changes ...func(*karpenterv1.NodePool)) *karpenterv1.NodePool {
	return test.NodePool("general", append([]func(*karpenterv1.NodePool){
		test.InstanceTypes("c-1x-amd64-linux"), test.Budgets(test.Budget("1")),
	}, changes...)...)
}

// nextGeneration makes every node of the pool drift.
func nextGeneration(pool *karpenterv1.NodePool, value string) {
	GinkgoHelper()
	environment.ExpectChanged(env, pool, test.NodeLabels(map[string]string{generation: value}))
}

// driftReason returns why the NodeClaim drifted, from its condition Drifted, or "".
func driftReason(claim string) string {
	GinkgoHelper()
	reason := ""
	for _, v := range env.History().Versions() {
		c, ok := v.Object.(*karpenterv1.NodeClaim)
		if ok && c.Name == claim && c.StatusConditions().Get(karpenterv1.ConditionTypeDrifted).IsTrue() {
			reason = c.StatusConditions().Get(karpenterv1.ConditionTypeDrifted).Reason
		}
	}
	return reason
}

var _ = Describe("Drift", func() {
	dedicated := corev1.Taint{Key: "example.com/dedicated", Value: "web", Effect: corev1.TaintEffectNoSchedule}
	onPool := func(changes ...func(*karpenterv1.NodePool)) func(*karpenterv1.NodePool) {
		return func(pool *karpenterv1.NodePool) { environment.ExpectChanged(env, pool, changes...) }
	}

	DescribeTable("replaces each node once, its replacement first and within the budget,",
		func(reason string, change func(*karpenterv1.NodePool), look gomegatypes.GomegaMatcher) {
			pool := onePool()
			claims := occupied(pool, 2, test.Tolerates(dedicated.Key))
			change(pool)
			Eventually(func() int { return len(env.Recorded().Created()) }).Should(Equal(4), "NodeClaims created, two and a replacement for each")
			nodes := env.EventuallyNodes(2)
			env.EventuallyPodsBound("web", 2)

			Expect(env.History().Created()).To(HaveLen(4))
			for _, c := range claims {
				Expect(driftReason(c.Name)).To(Equal(reason))
				Expect(env.History().DisruptionReason(c.Name)).To(Equal(string(karpenterv1.DisruptionReasonDrifted)))
				env.ExpectReplacedFirst(c)
			}
			env.ExpectAtMostDisrupted(pool.Name, 1)
			for _, node := range nodes {
				Expect(node).To(look)
			}
		},
		Entry("when a requirement of the NodePool changes", "RequirementsDrifted",
			onPool(test.InstanceTypes("c-2x-amd64-linux")),
			HaveField("Labels", HaveKeyWithValue(corev1.LabelInstanceTypeStable, "c-2x-amd64-linux"))),
		Entry("when the labels of its nodes change", "NodePoolDrifted",
			onPool(test.NodeLabels(map[string]string{generation: "2"})),
			HaveField("Labels", HaveKeyWithValue(generation, "2"))),
		Entry("when the taints of its nodes change", "NodePoolDrifted",
			onPool(test.NodeTaints(dedicated)),
			HaveField("Spec.Taints", ContainElement(dedicated))),
		Entry("when the provider has a newer machine image", "ImageDrifted",
			func(*karpenterv1.NodePool) { environment.ExpectChanged(env, test.NodeClass(), test.Image("v2")) },
			HaveField("Annotations", HaveKeyWithValue(mckubev1alpha1.AnnotationImage, "v2"))),
	)

	It("leaves a node alone once it has replaced another", func() {
		pool := onePool()
		claim := occupied(pool, 1)[0]
		nextGeneration(pool, "2")
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonDrifted)
		env.EventuallyPodsBound("web", 1)
		env.ExpectNoDisruption()
		Expect(env.History().Created()).To(HaveLen(2))
	})

	It("replaces the nodes of a static NodePool one by one, each replacement first", func() {
		pool := onePool(test.Replicas(2))
		env.ExpectApplied(pool)
		env.EventuallyNodes(2)
		claims := env.NodeClaims()
		nextGeneration(pool, "2")
		for _, c := range claims {
			env.EventuallyDisrupted(c, karpenterv1.DisruptionReasonDrifted)
			env.ExpectReplacedFirst(c)
		}
		env.EventuallyNodes(2)
		env.ExpectAtMostDisrupted(pool.Name, 1)
	})

	It("leaves a drifted node alone that a budget of none protects", func() {
		pool := onePool(test.Budgets(test.Budget("0", karpenterv1.DisruptionReasonDrifted)))
		claim := occupied(pool, 1)[0]
		nextGeneration(pool, "2")
		Eventually(func() string { return driftReason(claim.Name) }).Should(Equal("NodePoolDrifted"))
		env.ExpectNoDisruption()
		Expect(env.History().Disrupted()).To(BeEmpty())
	})
})
