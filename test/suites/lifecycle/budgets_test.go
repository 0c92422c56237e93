package lifecycle_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/environment"
)

// emptied returns a pool of n nodes whose pods have just left, with consolidation still off.
func emptied(n int32, budgets ...karpenterv1.Budget) *karpenterv1.NodePool {
	GinkgoHelper()
	pool := test.NodePool("general", test.InstanceTypes("c-1x-amd64-linux"), test.Budgets(budgets...))
	leaves := test.Deployment("leaves", n, "900m")
	env.ExpectApplied(pool, leaves)
	env.EventuallyPodsBound("leaves", int(n))
	env.EventuallyNodes(int(n))
	empty(leaves)
	return pool
}

func empty(d *appsv1.Deployment) {
	GinkgoHelper()
	env.ExpectScaled(d, 0)
	env.EventuallyPodsBound(d.Name, 0)
}

// window is a budget that is active from the time of day for an hour, in UTC.
func window(nodes string, from time.Time) karpenterv1.Budget {
	from = from.UTC()
	return karpenterv1.Budget{
		Nodes:    nodes,
		Schedule: lo.ToPtr(fmt.Sprintf("%d %d * * *", from.Minute(), from.Hour())),
		Duration: &metav1.Duration{Duration: time.Hour},
	}
}

var _ = Describe("Disruption budgets", func() {
	It("bound the nodes disrupted at once by a number", func() {
		pool := test.NodePool("general", test.InstanceTypes("c-1x-amd64-linux"), test.Budgets(test.Budget("0")))
		env.ExpectApplied(pool)
		// Each pod has a zone of its own. Else Karpenter could plan the pod of the second node onto the first replacement, and
		// wait until that has joined.
		zones := []string{"test-zone-a", "test-zone-b", "test-zone-c"}
		for _, zone := range zones {
			env.ExpectApplied(test.Deployment(zone, 1, "900m", test.OnNodes(corev1.LabelTopologyZone, zone)))
		}
		for _, zone := range zones {
			env.EventuallyPodsBound(zone, 1)
		}
		env.EventuallyNodes(3)
		environment.ExpectChanged(env, pool, test.NodeLabels(map[string]string{"example.com/generation": "2"}))
		// All are to be replaced before one may be, and no replacement joins before the loop has looked for a
		// third: on a busy machine the first could be done when the second is begun.
		env.EventuallyCandidates(karpenterv1.DisruptionReasonDrifted, 3)
		slow := test.Fault("slow", mckubev1alpha1.FaultSlowRegistration, test.Delay(10*time.Minute))
		env.ExpectFault(slow)
		environment.ExpectChanged(env, pool, test.Budgets(test.Budget("2")))
		Eventually(func() int { most, _ := env.Recorded().MostDisrupting("general"); return most }).Should(Equal(2), "the budget is used")
		env.EventuallyPasses(1)
		env.ExpectDeleted(slow)
		Eventually(func() int { return len(env.Recorded().Created()) }).Should(Equal(6), "NodeClaims created, three and a replacement for each")
		env.EventuallyNodes(3)
		for _, zone := range zones {
			env.EventuallyPodsBound(zone, 1)
		}
		most, _ := env.History().MostDisrupting("general")
		Expect(most).To(Equal(2), "the budget is not exceeded")
	})

	It("bound the nodes disrupted at once by a share of the pool, rounded up", func() {
		pool := emptied(3, test.Budget("50%"))
		consolidateAll(pool, karpenterv1.ConsolidationPolicyWhenEmpty, karpenterv1.DisruptionReasonEmpty, 3)
		env.EventuallyNodes(0)
		most, _ := env.History().MostDisrupting("general")
		Expect(most).To(Equal(2), "half of three, rounded up")
	})

	It("apply while their schedule has a window open, and not outside it", func() {
		now := time.Now()
		pool := emptied(1, test.Budget("100%"), window("0", now.Add(-30*time.Minute)))
		consolidate(pool, karpenterv1.ConsolidationPolicyWhenEmpty)
		env.ExpectNoDisruption()
		env.EventuallyEvent(pool, "DisruptionBlocked", "blocking budget")
		environment.ExpectChanged(env, pool, test.Budgets(test.Budget("100%"), window("0", now.Add(6*time.Hour))))
		env.EventuallyNodes(0)
	})

	It("apply to the reasons they name, and to no other", func() {
		leaves := test.Deployment("leaves", 1, "900m")
		pool := test.NodePool("general", test.InstanceTypes("c-1x-amd64-linux"),
			test.Budgets(test.Budget("0", karpenterv1.DisruptionReasonDrifted), test.Budget("100%", karpenterv1.DisruptionReasonEmpty)))
		env.ExpectApplied(pool, leaves, test.Deployment("stays", 1, "900m"))
		env.EventuallyPodsBound("leaves", 1)
		kept := env.EventuallyPodsBound("stays", 1)[0]
		env.EventuallyNodes(2)
		drifted := env.NodeClaimOnNode(kept.Spec.NodeName)

		empty(leaves)
		environment.ExpectChanged(env, pool, test.NodeLabels(map[string]string{"example.com/generation": "2"}))
		consolidate(pool, karpenterv1.ConsolidationPolicyWhenEmpty)
		env.EventuallyNodes(1)
		Expect(env.History().Disrupted()).NotTo(ContainElement(drifted.Name))
		env.EventuallyEvent(pool, "DisruptionBlocked", "Drifted")

		environment.ExpectChanged(env, pool, test.Budgets(test.Budget("100%")))
		env.EventuallyDisrupted(drifted, karpenterv1.DisruptionReasonDrifted)
		env.EventuallyPodsBound("stays", 1)
	})
})
