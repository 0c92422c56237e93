package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

var _ = Describe("Static capacity", func() {
	It("keeps a pool at its number of nodes, whatever the pods need", func() {
		pool := test.NodePool("static", test.InstanceTypes("c-2x-amd64-linux"), test.Replicas(2))
		env.ExpectApplied(pool)
		nodes := env.EventuallyNodes(2)

		By("replacing a node that is deleted")
		lost := env.NodeClaimOf(nodes[0])
		env.ExpectDeleted(lost)
		env.EventuallyGone(lost)
		env.EventuallyNodes(2)

		By("following the number of replicas up and down")
		environment.ExpectChanged(env, pool, func(p *karpenterv1.NodePool) { p.Spec.Replicas = lo.ToPtr(int64(3)) })
		env.EventuallyNodes(3)
		environment.ExpectChanged(env, pool, func(p *karpenterv1.NodePool) { p.Spec.Replicas = lo.ToPtr(int64(1)) })
		env.EventuallyNodes(1)
		Expect(env.History().Created()).To(HaveLen(4))
	})
})
