package lifecycle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

var _ = Describe("A policy of costs or power", func() {
	const machine = "c-4x-amd64-linux"

	// launchedAtMost expects that no more machines of the pool were ever there at once.
	launchedAtMost := func(since uint64, pool string, n int) {
		GinkgoHelper()
		env.History().Since(since).Walk(func(s history.State) {
			count := 0
			for _, c := range s.NodeClaims {
				if c != nil && c.Status.ProviderID != "" && c.Labels[karpenterv1.NodePoolLabelKey] == pool {
					count++
				}
			}
			Expect(count).To(BeNumerically("<=", n), "machines of NodePool %s at revision %d", pool, s.Revision)
		})
	}

	// bound is how many pods of the workload have a node.
	bound := func() int {
		n := 0
		for _, p := range env.History().Last().Pods {
			if p != nil && p.Labels[test.Label] == "web" && p.Spec.NodeName != "" {
				n++
			}
		}
		return n
	}

	It("of power has pods that come at once wait where their machines would draw too much, says so, and lets them run when more may be drawn", func() {
		pool := test.NodePool("plant", test.InstanceTypes(machine), test.CapacityTypes("on-demand"))
		watts := wattsOf(machine)
		policy := test.PowerPolicy("plant", func(p *kcloudv1alpha1.PowerPolicy) { p.Spec.MaxPowerUsage = ptr.To(2.5 * watts) })
		began := env.Now()
		env.ExpectApplied(pool, policy, test.Deployment("web", 5, "3")) // one for each machine
		env.EventuallyEvent(pool, "PolicyLimit", "maxPowerUsage of PowerPolicy plant leaves")
		env.EventuallyNodes(2)
		Eventually(bound).Should(Equal(2))
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
			g.Expect(policy.Status.Pods).To(BeEquivalentTo(2))
			g.Expect(policy.Status.CurrentPower).To(And(BeNumerically(">", 0), BeNumerically("<=", 2*watts)))
			g.Expect(policy.Status.Phase).To(Equal(kcloudv1alpha1.PolicyActive))
		}).Should(Succeed())
		launchedAtMost(began, pool.Name, 2)

		By("letting it draw twice as much")
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
			policy.Spec.MaxPowerUsage = ptr.To(5 * watts)
			g.Expect(env.Client.Update(env, policy)).To(Succeed())
		}).Should(Succeed())
		env.EventuallyPodsBound("web", 5)
		env.EventuallyNodes(5)
	})

	It("of costs bounds the NodePools that name it, adds up what its pods cost, and tells when a limit is exceeded", func() {
		price := onDemandPrice(machine)
		pool := test.NodePool("bound", test.InstanceTypes(machine), test.CapacityTypes("on-demand"), func(np *karpenterv1.NodePool) {
			np.Annotations = map[string]string{kcloudv1alpha1.AnnotationCostPolicy: "team"}
		})
		policy := test.CostPolicy("team", func(p *kcloudv1alpha1.CostPolicy) {
			p.Spec.CostPerHourLimit = ptr.To(1.5 * price)
			p.Spec.WorkloadSelector = test.Selector("web")
		})
		began := env.Now()
		env.ExpectApplied(pool, policy, test.Deployment("web", 2, "3"))
		env.EventuallyEvent(pool, "PolicyLimit", "costPerHourLimit of CostPolicy team leaves")
		Eventually(bound).Should(Equal(1))
		launchedAtMost(began, pool.Name, 1)
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
			g.Expect(policy.Status.CostPerHour).To(BeNumerically("~", price, 1e-6))
			g.Expect(policy.Status.CurrentSpend).To(BeNumerically(">", 0))
			g.Expect(policy.Status.Violations).To(BeEmpty())
		}).Should(Succeed())
		Expect(env.ExpectCommand("cost", "--by", "workload")).To(And(ContainSubstring("default/Deployment/web"), MatchRegexp(`team +Active +%.4f`, price)))
		Expect(env.ExpectCommand("power", "--by", "nodepool", "-o", "csv")).To(MatchRegexp(`(?m)^bound,1,`))

		By("opening another NodePool, which does not name it")
		env.ExpectApplied(test.NodePool("unbound", test.InstanceTypes(machine), test.CapacityTypes("on-demand")))
		env.EventuallyPodsBound("web", 2)
		env.EventuallyEvent(policy, "PolicyViolated", "costPerHourLimit is")
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
			g.Expect(policy.Status.Phase).To(Equal(kcloudv1alpha1.PolicyViolated))
			g.Expect(env.Metric(g, "kcloud_cost_policy_dollars_per_hour", map[string]string{"policy": "team"})).To(BeNumerically("~", 2*price, 1e-6))
		}).Should(Succeed())

		By("bounding what the cheapest packing of the pods costs")
		all := test.CostPolicy("all")
		env.ExpectApplied(all)
		Eventually(func(g Gomega) {
			cost := env.Metric(g, "kcloud_fleet_cost_dollars_per_hour", nil)
			g.Expect(cost).To(BeNumerically("~", 2*price, 1e-6))
			g.Expect(env.Metric(g, "kcloud_fleet_lowest_cost_dollars_per_hour", nil)).To(BeNumerically("~", 2*price, 1e-4)) // no NodePool offers another
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(all), all)).To(Succeed())
			g.Expect(all.Status.Packing).NotTo(BeNil())
			g.Expect(all.Status.Packing.Pods).To(BeEquivalentTo(2))
		}).Should(Succeed())
		Expect(env.ExpectCommand("cost")).To(MatchRegexp(`cost %.4f USD per hour with 2 pods. No packing of these pods costs less than %.4f`, 2*price, 2*price))
	})
})

func wattsOf(machine string) float64 {
	GinkgoHelper()
	machines, err := catalogue.Default()
	Expect(err).NotTo(HaveOccurred())
	it, known := machines.Lookup(machine)
	Expect(known).To(BeTrue())
	return it.Watts.Max
}
