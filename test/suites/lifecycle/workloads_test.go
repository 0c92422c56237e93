package lifecycle_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("A WorkloadOptimizer", func() {
	It("tells what its pods cost and draw, when they keep their limits, and when no machine could", func() {
		wo := test.WorkloadOptimizer("web", test.CostsAtMost(1), test.DrawsAtMost(100))
		env.ExpectApplied(test.NodePool("general", test.InstanceTypes("c-4x-amd64-linux"), test.CapacityTypes("on-demand")), wo)
		eventually(wo, kcloudv1alpha1.PhasePending, kcloudv1alpha1.ConditionFeasible, metav1.ConditionTrue, "MachinesAllowed")

		By("running two pods on one machine")
		env.ExpectApplied(test.Deployment("web", 2, "1"))
		env.EventuallyPodsBound("web", 2)
		env.EventuallyNodes(1)
		eventually(wo, kcloudv1alpha1.PhaseOptimized, kcloudv1alpha1.ConditionDataQuality, metav1.ConditionTrue, "Modelled")
		env.EventuallyEvent(wo, "WorkloadOptimized", "All pods are ready and keep all constraints")
		s := wo.Status
		Expect(s.Replicas).To(BeEquivalentTo(2))
		Expect(s.AssignedNode).NotTo(BeEmpty())
		// Nothing else runs there, so that the pods and what they leave idle are the whole machine.
		Expect(s.CurrentCost + s.IdleCost).To(BeNumerically("~", onDemandPrice("c-4x-amd64-linux"), 1e-4))
		Expect(s.CurrentCost).To(BeNumerically(">", s.LowestCost/2))
		Expect(s.LowestCost).To(BeNumerically("<=", s.CurrentCost+s.IdleCost))
		Expect(s.CurrentPower).To(BeNumerically(">", 0))
		Expect(*s.OptimizationScore).To(BeNumerically(">", 0))
		Eventually(func(g Gomega) {
			g.Expect(env.Metric(g, "kcloud_optimization_score", map[string]string{"name": "web"})).To(Equal(*s.OptimizationScore))
			g.Expect(env.Metric(g, "kcloud_workload_optimizations_total", map[string]string{"name": "web"})).To(BeNumerically(">=", 1))
		}).Should(Succeed())

		By("lowering the limit of watts below what any machine draws for them")
		change(wo, func() { wo.Spec.PowerConstraints.MaxPowerUsage = 0.5 })
		eventually(wo, kcloudv1alpha1.PhaseFailed, kcloudv1alpha1.ConditionFeasible, metav1.ConditionFalse, "PowerLimitTooLow")
		Expect(meta.IsStatusConditionFalse(wo.Status.Conditions, kcloudv1alpha1.ConditionPowerOptimized)).To(BeTrue())

		By("suspending it")
		change(wo, func() { wo.Annotations = map[string]string{kcloudv1alpha1.AnnotationDisabled: "true"} })
		eventually(wo, kcloudv1alpha1.PhaseSuspended, kcloudv1alpha1.ConditionReady, metav1.ConditionFalse, "Suspended")
		Expect(wo.Status.CurrentCost).To(BeZero())
	})

	It("of KCloud's documentation says which machine it misses", func() {
		data, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "kcloud", "seed-ml-training-optimizer.yaml"))
		Expect(err).NotTo(HaveOccurred())
		wo := &kcloudv1alpha1.WorkloadOptimizer{}
		Expect(yaml.Unmarshal(data, wo)).To(Succeed())
		wo.Namespace, wo.Status = test.Namespace, kcloudv1alpha1.WorkloadOptimizerStatus{}
		env.ExpectApplied(test.NodePool("general"), wo)
		eventually(wo, kcloudv1alpha1.PhaseFailed, kcloudv1alpha1.ConditionFeasible, metav1.ConditionFalse, "NoMachine")
		Expect(meta.FindStatusCondition(wo.Status.Conditions, kcloudv1alpha1.ConditionFeasible).Message).To(ContainSubstring("accelerator"))

		By("labelling the nodes of a NodePool")
		env.ExpectApplied(test.NodePool("gpus", test.Families("v100m16"), test.NodeLabels(map[string]string{"accelerator": "nvidia-gpu"})))
		eventually(wo, kcloudv1alpha1.PhasePending, kcloudv1alpha1.ConditionFeasible, metav1.ConditionTrue, "MachinesAllowed")
	})
})

func onDemandPrice(machine string) float64 {
	GinkgoHelper()
	machines, err := catalogue.Default()
	Expect(err).NotTo(HaveOccurred())
	it, known := machines.Lookup(machine)
	Expect(known).To(BeTrue())
	return it.Price.OnDemand
}

func eventually(wo *kcloudv1alpha1.WorkloadOptimizer, phase kcloudv1alpha1.WorkloadOptimizerPhase, condition string, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(wo), wo)).To(Succeed())
		g.Expect(wo.Status.Phase).To(Equal(phase), "%+v", wo.Status)
		c := meta.FindStatusCondition(wo.Status.Conditions, condition)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Status).To(Equal(status), c.Message)
		g.Expect(c.Reason).To(Equal(reason), c.Message)
	}).Should(Succeed())
}

func change(wo *kcloudv1alpha1.WorkloadOptimizer, by func()) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(wo), wo)).To(Succeed())
		by()
		g.Expect(env.Client.Update(env, wo)).To(Succeed())
	}).Should(Succeed())
}
