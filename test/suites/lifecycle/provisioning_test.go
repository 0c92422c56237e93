package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

var _ = Describe("Provisioning", func() {
	It("opens the one machine that holds the pending pods for the least money", func() {
		env.ExpectPending(test.Deployment("web", 3, "1"))
		env.ExpectApplied(test.NodePool("general", test.Families("c", "s", "m")))
		env.EventuallyPodsBound("web", 3)
		node := env.EventuallyNodes(1)[0]
		Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "c-4x-amd64-linux"))
		Expect(node.Labels).To(HaveKeyWithValue(karpenterv1.NodePoolLabelKey, "general"))
		Expect(env.History().Last().PricePerHour()).To(BeNumerically("~", 0.1086, 0.0001))
	})

	It("gives each pod a machine that it may run on, and says why there is none", func() {
		dedicated := corev1.Taint{Key: "example.com/dedicated", Value: "batch", Effect: corev1.TaintEffectNoSchedule}
		env.ExpectApplied(
			test.NodePool("plain", test.Requires(corev1.LabelArchStable, "amd64", "arm64")),
			test.NodePool("batch", test.NodeTaints(dedicated), test.NodeLabels(map[string]string{"example.com/pool": "batch"})),
			test.Deployment("arm", 1, "1", test.OnNodes(corev1.LabelArchStable, "arm64")),
			test.Deployment("tolerant", 1, "1", test.Tolerates(dedicated.Key), test.OnNodes("example.com/pool", "batch")),
		)
		intolerant := test.Pod("intolerant", "1", test.OnNodes("example.com/pool", "batch"))
		env.ExpectApplied(intolerant)

		arm, tolerant := env.EventuallyPodsBound("arm", 1)[0], env.EventuallyPodsBound("tolerant", 1)[0]
		env.EventuallyEvent(intolerant, "FailedScheduling", "did not tolerate taint")
		env.EventuallyNodes(2)
		byName := env.History().Last().Nodes
		Expect(byName[arm.Spec.NodeName].Labels).To(HaveKeyWithValue(corev1.LabelArchStable, "arm64"))
		Expect(byName[arm.Spec.NodeName].Labels).To(HaveKeyWithValue(karpenterv1.NodePoolLabelKey, "plain"))
		Expect(byName[tolerant.Spec.NodeName].Labels).To(HaveKeyWithValue(karpenterv1.NodePoolLabelKey, "batch"))
		Expect(byName[tolerant.Spec.NodeName].Spec.Taints).To(ContainElement(dedicated))
	})

	It("opens machines in as many zones as the pods must be spread over", func() {
		zones := []string{"test-zone-a", "test-zone-b", "test-zone-c"}
		env.ExpectApplied(test.NodePool("general", test.Zones(zones...)), test.Deployment("web", 3, "500m", test.SpreadOver(corev1.LabelTopologyZone)))
		env.EventuallyPodsBound("web", 3)
		var used []string
		for _, node := range env.EventuallyNodes(3) {
			used = append(used, node.Labels[corev1.LabelTopologyZone])
		}
		Expect(used).To(ConsistOf(zones))
	})

	It("never exceeds the limits of a NodePool, and says so to the pods that wait", func() {
		env.ExpectApplied(
			test.NodePool("small", test.InstanceTypes("c-2x-amd64-linux"), test.Limits(corev1.ResourceCPU, "4")),
			test.Deployment("web", 3, "1500m"),
		)
		env.EventuallyNodes(2)
		env.EventuallyAnyEvent("FailedScheduling", "limits")
		Eventually(func() int { return len(environment.NodesOf(bound(env.Pods("web")))) }).Should(Equal(2))
		env.History().Walk(func(s history.State) { Expect(len(s.NodeClaims)).To(BeNumerically("<=", 2)) })
	})

	It("prefers the NodePool of more weight", func() {
		env.ExpectApplied(test.NodePool("light", test.Weight(1)), test.NodePool("heavy", test.Weight(50)), test.Deployment("web", 1, "1"))
		env.EventuallyPodsBound("web", 1)
		env.EventuallyNodes(1, environment.OfPool("heavy"))
		env.EventuallyNodes(1)
	})

	It("says why no machine can hold a pod, and opens none for it", func() {
		env.ExpectApplied(test.NodePool("general"))
		huge, elsewhere := test.Pod("huge", "1000"), test.Pod("elsewhere", "1", test.OnNodes(corev1.LabelTopologyZone, "moon"))
		env.ExpectApplied(huge, elsewhere)
		env.EventuallyEvent(huge, "FailedScheduling", "no instance type has enough resources")
		env.EventuallyEvent(elsewhere, "FailedScheduling", "topology.kubernetes.io/zone")
		env.EventuallyNodes(0)
		Expect(env.History().Created()).To(BeEmpty())
	})

	It("leaves room for the pods that every node runs", func() {
		env.ExpectApplied(test.DaemonSet("agent", "500m"), test.NodePool("general"), test.Deployment("web", 1, "600m"))
		env.EventuallyPodsBound("web", 1)
		env.EventuallyPodsBound("agent", 1)
		node := env.EventuallyNodes(1)[0]
		Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "c-2x-amd64-linux"), "600m alone would fit the smallest type")
	})
})

func bound(pods []*corev1.Pod) []*corev1.Pod {
	var list []*corev1.Pod
	for _, p := range pods {
		if p.Spec.NodeName != "" {
			list = append(list, p)
		}
	}
	return list
}
