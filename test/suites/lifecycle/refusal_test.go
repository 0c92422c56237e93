package lifecycle_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// requirement adds a requirement of any kind to a pool.
func requirement(key string, operator corev1.NodeSelectorOperator, values ...string) func(*karpenterv1.NodePool) {
	return func(p *karpenterv1.NodePool) {
		p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements,
			karpenterv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: operator, Values: values})
	}
}

var _ = Describe("The API server", func() {
	DescribeTable("refuses a NodePool, with the reason:",
		func(change func(*karpenterv1.NodePool), reason string) {
			env.ExpectRefused(test.NodePool("invalid", change), reason)
		},
		Entry("a budget of more than all nodes", test.Budgets(test.Budget("101%")), "spec.disruption.budgets[0].nodes"),
		Entry("a budget that is negative", test.Budgets(test.Budget("-1")), "spec.disruption.budgets[0].nodes"),
		Entry("a budget for a reason that does not exist", test.Budgets(test.Budget("1", "Boredom")), `Unsupported value: "Boredom"`),
		Entry("a budget with a schedule and no duration",
			test.Budgets(karpenterv1.Budget{Nodes: "1", Schedule: lo.ToPtr("@daily")}), "'schedule' must be set with 'duration'"),
		Entry("a budget with a duration and no schedule",
			test.Budgets(karpenterv1.Budget{Nodes: "1", Duration: &metav1.Duration{Duration: time.Hour}}), "'schedule' must be set with 'duration'"),
		Entry("a requirement without values", requirement("example.com/team", corev1.NodeSelectorOpIn), "must have a value defined"),
		Entry("a comparison with no number", requirement("karpenter.kwok.sh/instance-cpu", corev1.NodeSelectorOpGt, "many"), "must have a single positive integer value"),
		Entry("a requirement that would choose the NodePool", requirement(karpenterv1.NodePoolLabelKey, corev1.NodeSelectorOpIn, "other"), `label "karpenter.sh/nodepool" is restricted`),
		Entry("a label that only the controller writes", test.NodeLabels(map[string]string{karpenterv1.NodeInitializedLabelKey: "true"}), `label domain "karpenter.sh" is restricted`),
		Entry("a weight beyond 100", test.Weight(101), "should be less than or equal to 100"),
		Entry("a weight of a static NodePool", func(p *karpenterv1.NodePool) { test.Replicas(1)(p); test.Weight(1)(p) }, "'weight' is not supported on static NodePools"),
		Entry("a node class without name", func(p *karpenterv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = "" }, "name may not be empty"),
	)

	DescribeTable("refuses a SimulatedFault, with the reason:",
		func(kind mckubev1alpha1.FaultType, change test.FaultChange, reason string) {
			env.ExpectRefused(test.Fault("invalid", kind, change), reason)
		},
		Entry("a type that does not exist", mckubev1alpha1.FaultType("Flood"), func(*mckubev1alpha1.SimulatedFault) {}, `Unsupported value: "Flood"`),
		Entry("a notice of what gives none", mckubev1alpha1.FaultShortage, test.Notice(time.Minute), "notice is only for type SpotInterruption"),
		Entry("slow registration without a delay", mckubev1alpha1.FaultSlowRegistration, func(*mckubev1alpha1.SimulatedFault) {}, "needs a delay"),
		Entry("a failure of condition Ready", mckubev1alpha1.FaultNodeFailure, test.Breaks("Ready"), "leave condition out to stop the kubelet"),
	)
})
