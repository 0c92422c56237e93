package inventory_test

import (
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	mcoperatorv1 "github.com/mainspring-rt/mainspring/pkg/apis/mcoperator/v1"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
	"github.com/mainspring-rt/mainspring/pkg/test"
)

// withCores lays the machine's cores out: the first is the system's, three take real-time work.
func withCores(m *mckubev1alpha1.InventoryMachine) {
	m.Spec.Cores = &mckubev1alpha1.CoreLayout{NUMANodes: 1, CoresPerNUMA: 4, Housekeeping: []int32{0}, BandwidthPPM: 950_000, Backend: "simulated"}
}

// agentOf plays the node agent of machines like m, until the scenario ends: on a real one it finds the cores that the
// InventoryMachine promises.
func agentOf(m *mckubev1alpha1.InventoryMachine) {
	GinkgoHelper()
	cores, err := yaml.Marshal(map[string]any{
		"numaNodes": m.Spec.Cores.NUMANodes, "coresPerNuma": m.Spec.Cores.CoresPerNUMA, "smt": m.Spec.Cores.SMT,
		"housekeeping": m.Spec.Cores.Housekeeping, "bandwidthPpm": m.Spec.Cores.BandwidthPPM, "source": "machine",
	})
	Expect(err).NotTo(HaveOccurred())
	layout := map[string]any{}
	Expect(yaml.Unmarshal(cores, &layout)).To(Succeed())
	text, err := yaml.Marshal(map[string]any{
		"sources": map[string]any{"machine": "the InventoryMachine " + m.Name}, "zones": []string{"hall-1"},
		"instanceTypes": []any{map[string]any{
			"name": m.Status.InstanceType, "class": "edge", "family": "edge", "architecture": "amd64", "cpu": 4, "memoryGiB": 8, "pods": 110,
			"ephemeralGiB": 20, "rt": layout, "price": map[string]any{"onDemand": 1, "source": "machine"},
			"watts": map[string]any{"idle": 5, "max": 10, "source": "machine"},
		}},
	})
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(GinkgoT().TempDir(), "machines.yaml")
	Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	Expect(env.Agents.Start(env, "--kubeconfig="+env.Plane.Kubeconfig(), "--catalogue-file="+file)).To(Succeed())
	DeferCleanup(func() { Expect(env.Agents.Stop()).To(Succeed()) })
}

// claiming gives the pod the claim for a core that the webhooks, which this suite has not, would give it for its McKube.
func claiming(m *mcoperatorv1.McKube) func(*test.PodTemplate) {
	GinkgoHelper()
	name := ""
	Eventually(func(g Gomega) {
		templates := &resourcev1.ResourceClaimTemplateList{}
		g.Expect(env.Client.List(env, templates, client.InNamespace(m.Namespace))).To(Succeed())
		g.Expect(templates.Items).To(HaveLen(1), "templates of claims")
		name = templates.Items[0].Name
	}).Should(Succeed())
	return func(t *test.PodTemplate) {
		test.Claims(name)(t)
		claim := rtdra.ClaimName(t.Spec.Containers[0].Name)
		t.Spec.ResourceClaims[0].Name, t.Spec.Containers[0].Resources.Claims[0].Name = claim, claim
	}
}

var _ = Describe("A machine with cores for real-time work", func() {
	It("is switched on for a governed pod, which gets a core of it, and goes off when the pod is deleted", func() {
		env.ExpectApplied(machine("edge-1"), machine("edge-2", withCores, costing("0.5")))
		phase("edge-1", "Free") // the cheaper one, without cores
		layout := phase("edge-2", "Free")
		agentOf(layout)
		control := test.McKube("control", 60, test.Critical(mcoperatorv1.CriticalityHigh))
		env.ExpectApplied(pool(test.Consolidates(karpenterv1.ConsolidationPolicyWhenEmpty, "0s")), control)
		pod := test.RTPod("control", claiming(control))
		env.ExpectApplied(pod)

		place := env.EventuallyPlace("control")
		Expect(place.Node).To(Equal("edge-2"))
		Expect(place.Core).To(BeElementOf(int32(1), int32(2), int32(3)))
		claim := env.NodeClaimOf(env.EventuallyNodes(1)[0])
		Expect(phase("edge-2", "InUse").Status.Claim.UID).To(Equal(claim.UID))
		Expect(calls("edge-2", "on")).To(Equal(1))
		Expect(power("edge-1")).To(Equal("off"))
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(env, client.ObjectKeyFromObject(control), control)).To(Succeed())
			g.Expect(control.Status.AllocatedCore).To(Equal(fmt.Sprint(place.Core)))
		}).Should(Succeed())

		env.ExpectDeleted(pod)
		env.EventuallyGone(claim)
		phase("edge-2", "Free")
		Expect(power("edge-2")).To(Equal("off"))
	})
})
