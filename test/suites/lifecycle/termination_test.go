package lifecycle_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// deletionOf returns the deletion timestamp that the pod went with: the moment of its deletion plus
// the grace it was given.
func deletionOf(pod *corev1.Pod) time.Time {
	GinkgoHelper()
	deleting, ok := env.History().First(func(s history.State) bool {
		p := s.Pods[client.ObjectKeyFromObject(pod)]
		return p != nil && p.UID == pod.UID && !p.DeletionTimestamp.IsZero()
	})
	Expect(ok).To(BeTrue(), "pod %s was never told to go", pod.Name)
	return deleting.Pods[client.ObjectKeyFromObject(pod)].DeletionTimestamp.Time
}

// undisturbed tells whether, in every state since the revision, the pod runs on its node and has not
// been told to go.
func undisturbed(h history.History, pod *corev1.Pod) bool {
	still := true
	h.Walk(func(s history.State) {
		p := s.Pods[client.ObjectKeyFromObject(pod)]
		still = still && p != nil && p.UID == pod.UID && p.DeletionTimestamp.IsZero() && p.Status.Phase == corev1.PodRunning
	})
	return still
}

// gone returns the first state in which the object that present looks for is there no more.
func gone(present func(history.State) bool) history.State {
	GinkgoHelper()
	seen := false
	s, ok := env.History().First(func(s history.State) bool {
		seen = seen || present(s)
		return seen && !present(s)
	})
	Expect(ok).To(BeTrue(), "it never went")
	return s
}

func goneNode(name string) history.State {
	GinkgoHelper()
	return gone(func(s history.State) bool { return s.Nodes[name] != nil })
}

var _ = Describe("Termination", func() {
	general := func(changes ...func(*karpenterv1.NodePool)) *karpenterv1.NodePool {
		return test.NodePool("general", append([]func(*karpenterv1.NodePool){test.InstanceTypes("c-4x-amd64-linux")}, changes...)...)
	}

	It("waits for a PodDisruptionBudget that forbids an eviction, says so, and ends once it allows it", func() {
		pdb := test.PodDisruptionBudget("web", 0)
		env.ExpectApplied(pdb)
		claim := occupied(general(), 1)[0]
		pod, node := env.Pods("web")[0], nodeOf(claim)
		began, refused := env.Now(), refusedEvictions()
		env.ExpectDeleted(claim)
		env.EventuallyEvent(node, "FailedDraining", "1 pods are waiting to be evicted")
		Eventually(refusedEvictions).Should(BeNumerically(">", refused), "the eviction is tried")
		Expect(undisturbed(env.History().Since(began), pod)).To(BeTrue(), "the pod is left alone")

		environment.ExpectChanged(env, pdb, func(b *policyv1.PodDisruptionBudget) { *b.Spec.MaxUnavailable = intstr.FromInt32(1) })
		env.EventuallyGone(claim, node)
		env.EventuallyPodsBound("web", 1)
	})

	It("evicts no more pods at once than their PodDisruptionBudget allows", func() {
		env.ExpectApplied(test.PodDisruptionBudget("web", 1))
		env.ExpectPending(test.Deployment("web", 3, "500m"))
		env.ExpectApplied(general())
		env.EventuallyPodsBound("web", 3)
		claim := env.NodeClaimOf(env.EventuallyNodes(1)[0])
		began := env.Now()
		env.ExpectDeleted(claim)
		env.EventuallyGone(claim)
		env.EventuallyPodsBound("web", 3)
		env.History().Since(began).Walk(func(s history.State) {
			Expect(serving(s, "web")).To(BeNumerically(">=", 2), "pods that run, at revision %d", s.Revision)
		})
	})

	It("gives pods the whole of their terminationGracePeriodSeconds, and keeps the node until they have ended", func() {
		const grace = 8 * time.Second
		claim := occupied(general(), 1, test.StopsIn(grace), test.IgnoresSIGTERM())[0]
		pod := env.Pods("web")[0]
		env.ExpectDeleted(claim)
		env.EventuallyGone(claim)
		told, _ := env.History().First(func(s history.State) bool {
			p := s.Pods[client.ObjectKeyFromObject(pod)]
			return p != nil && !p.DeletionTimestamp.IsZero()
		})
		Expect(*told.Pods[client.ObjectKeyFromObject(pod)].DeletionGracePeriodSeconds).To(Equal(int64(grace.Seconds())))
		Expect(podsOn(goneNode(claim.Status.NodeName), claim.Status.NodeName)).To(BeEmpty(), "pods on the node when it went")
	})

	It("disrupts no node with a pod that is annotated do-not-disrupt, says so, and does once the pod allows it", func() {
		pool := general()
		claim := occupied(pool, 1, test.DoNotDisrupt())[0]
		env.ExpectRestart()
		nextGeneration(pool, "2")
		env.EventuallyEvent(nodeOf(claim), "DisruptionBlocked", karpenterv1.DoNotDisruptAnnotationKey)
		env.ExpectNoDisruption()
		Expect(env.History().Disrupted()).To(BeEmpty())

		environment.ExpectChanged(env, env.Pods("web")[0], func(p *corev1.Pod) { delete(p.Annotations, karpenterv1.DoNotDisruptAnnotationKey) })
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonDrifted)
		env.EventuallyPodsBound("web", 1)
	})

	It("ends a node at its terminationGracePeriod, whatever a PodDisruptionBudget says, and not before", func() {
		const grace = 12 * time.Second
		env.ExpectApplied(test.PodDisruptionBudget("web", 0))
		claim := occupied(general(test.TerminationGracePeriod(grace)), 1, test.StopsIn(2*time.Second))[0]
		pod := env.Pods("web")[0]
		env.ExpectDeleted(claim)
		env.EventuallyGone(claim)
		told, _ := env.History().StateAtDeletion(claim.Name)
		Expect(deletionOf(pod)).To(BeTemporally(">=", told.NodeClaims[claim.Name].DeletionTimestamp.Add(grace-time.Second)), "by the API's own times, which are whole seconds")
		env.EventuallyPodsBound("web", 1)
	})

	DescribeTable("leaves neither Node nor NodeClaim behind, and ends the Node first,",
		func(remove func(*karpenterv1.NodePool, *karpenterv1.NodeClaim) client.Object) {
			pool := general()
			claim := occupied(pool, 1)[0]
			env.ExpectDeleted(remove(pool, claim))
			env.EventuallyGone(claim, nodeOf(claim))
			node := goneNode(claim.Status.NodeName)
			Expect(node.NodeClaims).To(HaveKey(claim.Name), "when the Node went")
			Expect(podsOn(node, claim.Status.NodeName)).To(BeEmpty(), "when the Node went")
		},
		Entry("when the NodeClaim is deleted", func(_ *karpenterv1.NodePool, c *karpenterv1.NodeClaim) client.Object { return c }),
		Entry("when the Node is deleted", func(_ *karpenterv1.NodePool, c *karpenterv1.NodeClaim) client.Object { return nodeOf(c) }),
		Entry("when the NodePool is deleted", func(p *karpenterv1.NodePool, _ *karpenterv1.NodeClaim) client.Object { return p }),
	)
})

// refusedEvictions is how many evictions the API server has refused the controller because of a
// PodDisruptionBudget.
func refusedEvictions() float64 {
	GinkgoHelper()
	var n float64
	Eventually(func(g Gomega) {
		n = env.Metric(g, "karpenter_pods_eviction_requests_total", map[string]string{"code": "429"})
	}).Should(Succeed())
	return n
}

// serving counts the workload's pods that run and have not been told to go.
func serving(s history.State, workload string) int { return servingElsewhere(s, workload, "") }

// servingElsewhere is serving without the pods on the node.
func servingElsewhere(s history.State, workload, node string) int {
	n := 0
	for _, p := range s.Pods {
		if p.Labels[test.Label] == workload && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp.IsZero() && p.Spec.NodeName != node {
			n++
		}
	}
	return n
}
