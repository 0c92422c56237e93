package lifecycle_test

import (
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

var _ = Describe("A crash of the controller", Label("heavy"), SpecPriority(1), func() {
	It("ten times in the middle of replacements leaves no node orphaned or tainted, loses no pod and exceeds no budget", func() {
		const nodes, budget, kills = 4, 2, 10
		random := environment.Random()
		pool := onePool(test.Budgets(test.Budget(strconv.Itoa(budget))))
		occupied(pool, nodes)
		began := env.Now()
		for kill := range kills {
			nextGeneration(pool, strconv.Itoa(kill))
			killAmidReplacement(pool, random.IntN(40))
			Expect(env.Controller.Start(env, environment.DefaultFlags()...)).To(Succeed())
		}

		// Replacements whose command died with the controller are nodes that nothing needs.
		consolidate(pool, karpenterv1.ConsolidationPolicyWhenEmpty)
		Eventually(func(g Gomega) {
			claims := env.Recorded().Last().NodeClaims
			g.Expect(claims).To(HaveLen(nodes))
			g.Expect(claims).To(HaveEach(HaveField("Labels", HaveKeyWithValue(generation, strconv.Itoa(kills-1)))))
		}).Should(Succeed(), "every node of the last generation, and no spare one")
		env.EventuallyNodes(nodes)
		env.EventuallyPodsBound("web", nodes)
		env.ExpectInvariants()
		env.ExpectAtMostDisrupted(pool.Name, budget)
		env.History().Since(began).Walk(func(s history.State) {
			Expect(serving(s, "web")).To(BeNumerically(">=", nodes-budget), "pods that run, at revision %d", s.Revision)
		})
	})
})

// killAmidReplacement kills the controller after so many more writes, once a node of the pool is on
// its way out.
func killAmidReplacement(pool *karpenterv1.NodePool, writes int) {
	GinkgoHelper()
	disrupting := func() []string { return env.Recorded().Last().Disrupting(pool.Name) }
	Eventually(disrupting).ShouldNot(BeEmpty(), "a replacement should begin")
	env.EventuallyWrites(writes)
	Eventually(disrupting).ShouldNot(BeEmpty(), "a replacement should be under way")
	env.Controller.Kill9()
	GinkgoWriter.Printf("killed after %d more writes, with %v on their way out\n", writes, disrupting())
}

var _ = Describe("An outage of the API server", Label("heavy"), SpecPriority(1), func() {
	DescribeTable("of 30 seconds is survived: no node is lost, and new pods are served",
		func(flags []string) {
			const outage = 30 * time.Second
			// A cloud gives a silent kubelet minutes: after an outage all of them are silent at first.
			env.ExpectControllerWith(append(flags, "--simulated-repair-toleration=10m")...)
			claim := occupied(onePool(), 1)[0]
			pod := env.Pods("web")[0]
			restarts := env.ExpectOutage(outage)
			GinkgoWriter.Printf("the controller was restarted %d times\n", restarts)

			env.ExpectApplied(test.Deployment("later", 1, "900m"))
			last := func() history.State {
				h, _ := env.HistoryWithGaps()
				return h.Last()
			}
			Eventually(func() int { return serving(last(), "later") }).Should(Equal(1), "kubelets too come back only after a while")
			env.EventuallyNodes(2)
			Expect(env.Pods("web")[0].UID).To(Equal(pod.UID))
			h, _ := env.HistoryWithGaps()
			Expect(h.Disrupted()).To(BeEmpty())
			Expect(h.Last().NodeClaims).To(HaveKey(claim.Name))
		},
		Entry("by a single controller", []string(nil)),
		Entry("by one that has to keep its lease, and is restarted as a Deployment restarts it", environment.ElectionFlags()),
	)
})
