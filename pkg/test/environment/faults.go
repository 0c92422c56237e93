package environment

import (
	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
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
