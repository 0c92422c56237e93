package lifecycle_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
)

var _ = Describe("Expiration", func() {
	const age = 20 * time.Second

	// expires waits until the NodeClaim is gone and returns what it was when it was told to go.
	expires := func(claim *karpenterv1.NodeClaim) *karpenterv1.NodeClaim {
		GinkgoHelper()
		env.EventuallyGone(claim)
		told, ok := env.History().StateAtDeletion(claim.Name)
		Expect(ok).To(BeTrue())
		return told.NodeClaims[claim.Name]
	}

	It("replaces a node once it has the age of expireAfter, and not before", func() {
		claim := occupied(test.NodePool("general", test.ExpireAfter(age.String())), 1)[0]
		expired := expires(claim)
		Expect(expired.DeletionTimestamp.Time).To(BeTemporally(">=", expired.CreationTimestamp.Add(age)), "by the API's own times")
		Expect(env.EventuallyPodsBound("web", 1)[0].Spec.NodeName).NotTo(Equal(claim.Status.NodeName))
	})

	It("is not held up by a disruption budget", func() {
		claim := occupied(test.NodePool("general", test.ExpireAfter(age.String()), test.Budgets(test.Budget("0"))), 1)[0]
		expires(claim)
		env.EventuallyPodsBound("web", 1)
	})

	It("ends a node with pods that refuse to leave after terminationGracePeriod", func() {
		const grace = 10 * time.Second
		pool := test.NodePool("general", test.ExpireAfter(age.String()), test.TerminationGracePeriod(grace))
		claim := occupied(pool, 1, test.DoNotDisrupt(), test.StopsIn(time.Second))[0]
		held := env.Pods("web")[0]
		expired := expires(claim)
		Expect(deletionOf(held)).To(BeTemporally(">=", expired.DeletionTimestamp.Add(grace)), "the pod had the whole grace")
		Expect(env.EventuallyPodsBound("web", 1)[0].Spec.NodeName).NotTo(Equal(claim.Status.NodeName))
	})
})
