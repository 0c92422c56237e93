package realtime_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("A pod that names its WorkloadOptimizer", func() {
	It("is given its placement, for which a node is opened", func() {
		const label = "accelerator"
		wo := test.WorkloadOptimizer("train", func(wo *kcloudv1alpha1.WorkloadOptimizer) {
			wo.Spec.PodSelector = nil
			wo.Spec.PlacementPolicy = &kcloudv1alpha1.PlacementPolicy{
				NodeSelector: map[string]string{label: "nvidia-gpu"},
				Affinity:     []kcloudv1alpha1.PlacementAffinity{{Key: corev1.LabelArchStable, Value: "amd64", Weight: 7}},
			}
		})
		env.ExpectApplied(wo, test.NodePool("plain"), test.NodePool("gpus", test.NodeLabels(map[string]string{label: "nvidia-gpu"})))
		// The webhook reads WorkloadOptimizers from a cache.
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(wo), wo)).To(Succeed())
			g.Expect(wo.Status.Phase).NotTo(BeEmpty())
		}).Should(Succeed())

		env.ExpectApplied(test.Deployment("train", 1, "100m", func(t *test.PodTemplate) { t.Labels[kcloudv1alpha1.LabelWorkloadOptimizer] = "train" }))
		pod := env.EventuallyPodsBound("train", 1)[0]
		Expect(pod.Spec.NodeSelector).To(HaveKeyWithValue(label, "nvidia-gpu"))
		Expect(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution).To(HaveLen(1))
		Expect(env.EventuallyNodes(1)[0].Labels).To(HaveKeyWithValue(label, "nvidia-gpu"))
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(wo), wo)).To(Succeed())
			g.Expect(wo.Status.AssignedNode).To(Equal(pod.Spec.NodeName))
		}).Should(Succeed())
	})
})
