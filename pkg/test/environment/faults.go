package environment

import (
	"slices"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// ExpectFault injects a fault into the simulated cloud and waits until it strikes.
func (env *Environment) ExpectFault(fault *mckubev1alpha1.SimulatedFault) {
	GinkgoHelper()
	env.ExpectApplied(fault)
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(fault), fault)).To(Succeed())
		g.Expect(meta.FindStatusCondition(fault.Status.Conditions, mckubev1alpha1.ConditionActive)).NotTo(BeNil())
	}).Should(Succeed(), "SimulatedFault %s should take effect", fault.Name)
}

// ExpectDead stops the kubelet of a node for good. Until its lease has run out nobody knows. Node repair then takes the machine away, and
// Karpenter deletes what was on it without asking anybody.
func (env *Environment) ExpectDead(node string) {
	GinkgoHelper()
	fault := test.Fault("dead-"+node, mckubev1alpha1.FaultNodeFailure, test.StrikesNodeClaims(env.NodeClaimOnNode(node).Name))
	env.ExpectFault(fault)
	env.EventuallyStruck(fault, 1)
	env.dead = append(env.dead, node)
}

// deceased are the pods that were on dead nodes.
func (env *Environment) deceased(h history.History) map[types.NamespacedName]bool {
	out := map[types.NamespacedName]bool{}
	if len(env.dead) == 0 {
		return out
	}
	h.Walk(func(s history.State) {
		for name, p := range s.Pods {
			if p != nil && slices.Contains(env.dead, p.Spec.NodeName) {
				out[name] = true
			}
		}
	})
	return out
}

// EventuallyStruck expects the fault to have acted on n NodeClaims, and returns their names.
func (env *Environment) EventuallyStruck(fault *mckubev1alpha1.SimulatedFault, n int) []string {
	GinkgoHelper()
	var names []string
	Eventually(func(g Gomega) {
		g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(fault), fault)).To(Succeed())
		names = nil
		for _, a := range fault.Status.Affected {
			if a.Applied {
				names = append(names, a.Name)
			}
		}
		g.Expect(names).To(HaveLen(n))
	}).Should(Succeed(), "NodeClaims struck by SimulatedFault %s", fault.Name)
	return names
}
