package ladder_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// headroom has a NodePool keep room for a High container of half a core.
func headroom(p *karpenterv1.NodePool) {
	p.Annotations = map[string]string{
		mckubev1alpha1.AnnotationHeadroom: `{pods: 1, criticality: High, rtSettings: {period: 100000, runtime_low: 50000, runtime_hi: 50000}, resources: {cpu: 100m}}`,
	}
}

// eventuallyKept expects Karpenter to have the room of every CapacityBuffer, of which there is one.
func eventuallyKept() {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		buffers := &autoscalingv1beta1.CapacityBufferList{}
		g.Expect(env.Client.List(env, buffers)).To(Succeed())
		g.Expect(buffers.Items).To(HaveLen(1))
		g.Expect(buffers.Items[0].Status.Conditions).To(ContainElement(And(HaveField("Type", "Provisioning"), HaveField("Status", BeEquivalentTo("True")))))
	}).Should(Succeed())
}

var _ = Describe("A NodePool with headroom", func() {
	It("has a core for the next High pod at once, on a machine that was there before it", func() {
		env.ExpectControllerWith("--feature-gates=NodeRepair=true,NodeOverlay=true,StaticCapacity=true,ReservedCapacity=true,CapacityBuffer=true")
		env.ExpectApplied(twoCores())
		taken := replicated(test.McKube("taken", 80, test.Critical(high)), 2) // both cores of a machine
		Expect(taken[1].Node).To(Equal(taken[0].Node))
		pool := &karpenterv1.NodePool{}
		Expect(env.Client.Get(env, client.ObjectKey{Name: "two"}, pool)).To(Succeed())
		plain := pool.DeepCopy()
		headroom(pool)
		Expect(env.Client.Patch(env, pool, client.MergeFrom(plain))).To(Succeed())
		spare := ""
		for _, n := range env.EventuallyNodes(2) {
			if n.Name != taken[0].Node {
				spare = n.Name
			}
		}
		eventuallyKept()
		before := env.NodeClaims()
		began := env.Now()
		place := governed(test.McKube("urgent", 50, test.Critical(high)))
		Expect(place.Node).To(Equal(spare))
		eventuallyKept() // on the machine's other core
		Expect(env.NodeClaims()).To(HaveLen(len(before)))
		for _, v := range env.History().Since(began).Versions() {
			if claim, ok := v.Object.(*karpenterv1.NodeClaim); ok {
				Expect(before).To(ContainElement(HaveField("UID", claim.UID)), "NodeClaim %s is made after the pod", claim.Name)
			}
		}
		undisturbed(began, taken[0].Pod, taken[1].Pod)
	})
})
