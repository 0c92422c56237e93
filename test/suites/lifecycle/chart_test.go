package lifecycle_test

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// The specs of this container run in a control plane of their own, into which helm has installed
// both charts. There env is that control plane.
var _ = Describe("The charts", Ordered, Label("heavy"), SpecPriority(1), func() {
	BeforeAll(func() {
		plain := env
		plain.AfterEach() // its BeforeEach has run for the first spec already
		Expect(plain.Controller.Stop()).To(Succeed())
		env = plain.StartCharted()
		DeferCleanup(func() { env = plain })
		env.BeforeEach()
	})

	AfterEach(func() { env.ExpectNothingForbidden() })

	It("run a controller that opens nodes for pending pods", func() {
		env.ExpectPending(test.Deployment("web", 3, "1"))
		env.ExpectApplied(test.NodePool("general"))
		env.EventuallyPodsBound("web", 3)
		env.EventuallyNodes(1)
	})

	It("run a controller that consolidates", func() {
		pool := test.NodePool("general")
		shrinks := test.Deployment("shrinks", 6, "900m")
		env.ExpectPending(shrinks)
		env.ExpectApplied(pool)
		env.EventuallyPodsBound("shrinks", 6)
		claim := env.NodeClaimOf(env.EventuallyNodes(1)[0])
		env.ExpectScaled(shrinks, 2)
		env.EventuallyPodsBound("shrinks", 2)
		consolidate(pool, karpenterv1.ConsolidationPolicyWhenEmptyOrUnderutilized)
		env.EventuallyDisrupted(claim, karpenterv1.DisruptionReasonUnderutilized)
		Expect(env.EventuallyNodes(1)[0].Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, "c-2x-amd64-linux"))
	})

	It("run a controller that replaces drifted nodes", func() {
		claims := occupied(onePool(), 2)
		environment.ExpectChanged(env, test.NodeClass(), test.Image("v2"))
		for _, c := range claims {
			env.EventuallyDisrupted(c, karpenterv1.DisruptionReasonDrifted)
			env.ExpectReplacedFirst(c)
		}
		env.EventuallyPodsBound("web", 2)
	})

	It("run a controller that answers a spot interruption", func() {
		occupied(test.NodePool("general", spot), 1)
		claim, end := interrupt(90 * time.Second)
		env.EventuallyGone(claim)
		Expect(drainedAt(claim.Name)).To(And(Not(BeZero()), BeTemporally("<", end)))
		env.EventuallyPodsBound("web", 1)
	})

	It("run a controller that repairs a node whose kubelet has stopped", func() {
		claims := occupied(onePool(), 2)
		broken := claims[0]
		breakNode(broken)
		Eventually(func() string { return env.Recorded().DisruptionReason(broken.Name) }).Should(Equal(string(karpenterv1.DisruptionReasonUnhealthy)))
		Eventually(func() int { return servingElsewhere(env.Recorded().Last(), "web", broken.Status.NodeName) }).Should(Equal(2))
	})

	DescribeTable("let metrics be read by whom they name, and by nobody else:",
		func(token func() string, status gomegatypes.GomegaMatcher) {
			Expect(env.MetricsStatus(token())).To(status)
		},
		Entry("a reader", func() string { return env.TokenOf("mainspring-system", "prometheus") }, Equal(http.StatusOK)),
		Entry("another ServiceAccount", func() string { return env.TokenOf("default", "default") }, Equal(http.StatusForbidden)),
		Entry("no token", func() string { return "" }, Equal(http.StatusUnauthorized)),
		// controller-runtime does not tell a token that the API server rejects from one that it could
		// not have reviewed.
		Entry("a token that is none", func() string { return "nonsense" }, Or(Equal(http.StatusUnauthorized), Equal(http.StatusInternalServerError))),
	)
})
