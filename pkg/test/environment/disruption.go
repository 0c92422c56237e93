package environment

import (
	"strings"

	. "github.com/onsi/ginkgo/v2" //nolint:staticcheck // the vocabulary of suites
	. "github.com/onsi/gomega"    //nolint:staticcheck // the vocabulary of assertions
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

const evaluations = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds"

// lastMethod is the method that the disruption loop tries last: when it has been evaluated, a whole
// pass has come to nothing.
var lastMethod = map[string]string{"reason": "underutilized", "consolidation_type": "single"}

// EventuallyPasses waits until the disruption loop has made at least n whole passes, all begun after
// the call, without acting. A pass that acts starts over and is not counted.
func (env *Environment) EventuallyPasses(n int) {
	GinkgoHelper()
	var before float64
	Eventually(func(g Gomega) { before = env.Metric(g, evaluations, lastMethod) }).Should(Succeed())
	// The pass under way at the call may have looked at the cluster before it.
	Eventually(func(g Gomega) float64 { return env.Metric(g, evaluations, lastMethod) - before }).
		Should(BeNumerically(">=", n+1), "passes of the disruption loop")
}

// ExpectNoDisruption expects that no node is disrupted while the disruption loop makes a whole pass
// over the cluster as it is now.
func (env *Environment) ExpectNoDisruption() {
	GinkgoHelper()
	now := env.Now()
	settled := env.History().Last().NodeClaims
	env.EventuallyPasses(1)
	h := env.History().Since(now)
	for _, name := range h.Disrupted() {
		Expect(settled).NotTo(HaveKey(name), "NodeClaim %s was disrupted for reason %q", name, h.DisruptionReason(name))
	}
}

// EventuallyConsolidatable expects every machine of the pool to have been without change for long
// enough to be consolidated.
func (env *Environment) EventuallyConsolidatable(pool string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		claims := env.nodeClaims(g, OfPool(pool))
		g.Expect(claims).NotTo(BeEmpty())
		for _, c := range claims {
			g.Expect(c.StatusConditions().Get(karpenterv1.ConditionTypeConsolidatable).IsTrue()).To(BeTrue(), "NodeClaim %s is not consolidatable", c.Name)
		}
	}).Should(Succeed())
}

// EventuallyCandidates expects a whole pass of the disruption loop to count n nodes that it may
// disrupt for the reason, budgets aside. A node is none yet while it is nominated for a pending pod,
// which it stays for seconds after that pod is gone.
func (env *Environment) EventuallyCandidates(reason karpenterv1.DisruptionReason, n int) {
	GinkgoHelper()
	env.EventuallyPasses(1) // the count of an earlier pass may be about other nodes
	Eventually(func(g Gomega) float64 {
		return env.Metric(g, "karpenter_voluntary_disruption_eligible_nodes", map[string]string{"reason": strings.ToLower(string(reason))})
	}).Should(BeEquivalentTo(n), "candidates for reason %s", reason)
}

// EventuallyDisrupted expects the NodeClaim to be disrupted for the reason, and finally gone.
func (env *Environment) EventuallyDisrupted(claim *karpenterv1.NodeClaim, reason karpenterv1.DisruptionReason) {
	GinkgoHelper()
	env.EventuallyGone(claim)
	Expect(env.History().DisruptionReason(claim.Name)).To(Equal(string(reason)), "reason for the disruption of NodeClaim %s", claim.Name)
}

// ExpectAtMostDisrupted expects from the history that never more than n of the pool's nodes were on
// their way out at once.
func (env *Environment) ExpectAtMostDisrupted(pool string, n int) {
	GinkgoHelper()
	most, when := env.History().MostDisrupting(pool)
	Expect(most).To(BeNumerically("<=", n), "at revision %d these were being disrupted at once: %v", when.Revision, when.Disrupting(pool))
}

// ExpectReplacedFirst expects from the history that when the NodeClaim was told to go, at least one
// NodeClaim created after it was chosen for disruption was initialised.
func (env *Environment) ExpectReplacedFirst(claim *karpenterv1.NodeClaim) {
	GinkgoHelper()
	h := env.History()
	chosen, ok := h.First(func(s history.State) bool {
		c, ok := s.NodeClaims[claim.Name]
		return ok && history.IsTainted(s.Nodes[c.Status.NodeName])
	})
	Expect(ok).To(BeTrue(), "NodeClaim %s was never chosen for disruption", claim.Name)
	told, ok := h.StateAtDeletion(claim.Name)
	Expect(ok).To(BeTrue(), "NodeClaim %s was never deleted", claim.Name)
	Expect(told.Revision).To(BeNumerically(">", chosen.Revision))
	var replacements []string
	for _, name := range told.Initialized("") {
		if _, older := chosen.NodeClaims[name]; !older {
			replacements = append(replacements, name)
		}
	}
	Expect(replacements).NotTo(BeEmpty(), "NodeClaim %s was deleted before its replacement was initialised", claim.Name)
}
