package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var _ = Describe("Replicas of the controller", func() {
	DescribeTable("work one at a time: the others stand by, and one takes over",
		func(end func(*environment.Program)) {
			env.ExpectControllerWith(environment.ElectionFlags()...)
			Eventually(func(g Gomega) { g.Expect(env.Leads(g, env.Controller)).To(BeTrue()) }).Should(Succeed())
			standby := env.ExpectReplica()
			pool := onePool()
			occupied(pool, 1)
			Eventually(func(g Gomega) {
				g.Expect(env.Leads(g, standby)).To(BeFalse())
				g.Expect(env.MetricOf(g, standby, "karpenter_nodeclaims_created_total", nil)).To(BeZero(), "what the other opened while it stood by")
			}).Should(Succeed())

			end(env.Controller)
			Eventually(func(g Gomega) { g.Expect(env.Leads(g, standby)).To(BeTrue()) }).Should(Succeed(), "the other should take over")
			env.ExpectApplied(test.Deployment("later", 1, "900m"))
			env.EventuallyPodsBound("later", 1)
			env.EventuallyNodes(2)
			Expect(standby.Stop()).To(Succeed())
		},
		Entry("when the leader is killed", func(c *environment.Program) { c.Kill9() }),
		Entry("when the leader is told to stop", func(c *environment.Program) { Expect(c.Stop()).To(Succeed()) }),
	)
})
