package environment

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// ExpectInvariants expects what must hold once a scenario is over: no Node without its NodeClaim, no
// NodeClaim without its NodePool, no node left tainted that is not on its way out, and a controller
// that neither crashed nor panicked nor raced. What is still in progress gets time to end.
func (env *Environment) ExpectInvariants() {
	GinkgoHelper()
	if env.Node == nil {
		Eventually(func(g Gomega) { g.Expect(env.violations(g)).To(BeEmpty()) }).Should(Succeed())
	}
	env.ExpectControllerSound()
}

// ExpectControllerSound expects that the controller has not ended by itself since the spec began,
// and that its log and metrics tell of no panic and no data race.
func (env *Environment) ExpectControllerSound() {
	GinkgoHelper()
	Expect(env.Controller.Crash()).To(Succeed())
	Expect(env.Controller.troubleSince(env.logStart)).To(BeEmpty())
	if !env.Controller.Running() {
		return
	}
	Eventually(func(g Gomega) float64 {
		return env.Metric(g, "controller_runtime_reconcile_panics_total", nil)
	}).Should(BeZero())
}

// violations lists what is not as it should be at this moment.
func (env *Environment) violations(g Gomega) []string {
	nodes, claims, pools := &corev1.NodeList{}, &karpenterv1.NodeClaimList{}, &karpenterv1.NodePoolList{}
	g.Expect(env.Client.List(env, nodes)).To(Succeed())
	g.Expect(env.Client.List(env, claims)).To(Succeed())
	g.Expect(env.Client.List(env, pools)).To(Succeed())
	owners, machines := sets.New[string](), map[string]*karpenterv1.NodeClaim{}
	for i := range pools.Items {
		owners.Insert(pools.Items[i].Name)
	}
	var list []string
	for i := range claims.Items {
		c := &claims.Items[i]
		machines[c.Status.ProviderID] = c
		if pool := c.Labels[karpenterv1.NodePoolLabelKey]; !owners.Has(pool) {
			list = append(list, fmt.Sprintf("NodeClaim %s outlives its NodePool %q", c.Name, pool))
		}
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		claim, ok := machines[n.Spec.ProviderID]
		if !ok {
			list = append(list, fmt.Sprintf("Node %s has no NodeClaim", n.Name))
			continue
		}
		if history.IsTainted(n) && n.DeletionTimestamp.IsZero() && claim.DeletionTimestamp.IsZero() {
			list = append(list, fmt.Sprintf("Node %s is tainted %s and not being deleted", n.Name, karpenterv1.DisruptedTaintKey))
		}
	}
	return list
}
