package inventory_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/inventory"
)

func adoptInto(pool string) func(*inventory.Machine) {
	return func(m *inventory.Machine) { m.Spec.AdoptInto = pool }
}

func TestAMachineThatHasJoinedByHandIsLeftAlone(t *testing.T) {
	w := newWorld(t, machine("m1"), nodePool("edge"))
	w.board("m1").state = v1alpha1.PowerOn
	w.join("m1")
	w.settle("m1")
	w.expectReason("m1", v1alpha1.ReasonMachineJoinedByHand)
	if w.free() != 0 || len(w.board("m1").calls) != 0 {
		t.Errorf("%d free, calls %v", w.free(), w.board("m1").calls)
	}
	if _, err := w.launch(nodeClaim("a")); !karpcloud.IsInsufficientCapacityError(err) {
		t.Errorf("error %v", err)
	}
}

func TestAdoption(t *testing.T) {
	pool := nodePool("edge")
	pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "starting", Effect: corev1.TaintEffectNoExecute}}
	w := newWorld(t, machine("m1", adoptInto("edge")), machine("m2"), pool)
	w.board("m1").state = v1alpha1.PowerOn
	w.join("m1")
	w.settle("m1", "m2")
	w.expectReason("m1", v1alpha1.ReasonMachineAdopting)
	claim := &karpv1.NodeClaim{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "edge-m1"}, claim); err != nil {
		t.Fatal(err)
	}
	if len(claim.OwnerReferences) != 1 || claim.OwnerReferences[0].Name != "edge" || len(claim.Spec.StartupTaints) != 0 ||
		claim.Labels[karpv1.NodePoolLabelKey] != "edge" || claim.Annotations[karpv1.NodePoolHashAnnotationKey] != pool.Hash() {
		t.Errorf("NodeClaim %+v", claim)
	}
	claim.UID, claim.Finalizers = "uid-adopting", []string{karpv1.TerminationFinalizer}
	if err := w.client.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if created := w.mustLaunch(claim); created.Status.ProviderID != "inventory://m1" {
		t.Fatalf("machine %s: not the one that the NodeClaim was made for", created.Status.ProviderID)
	}
	w.settle("m1", "m2")
	if m := w.expectPhase("m1", "InUse"); !m.Status.Claim.Adopted || len(w.board("m1").calls) != 0 {
		t.Errorf("claim %+v, calls %v: nothing is switched", m.Status.Claim, w.board("m1").calls)
	}
	w.end(claim, "m1", "m2")
	w.expectPhase("m1", "Free")
	if got := strings.Join(w.board("m1").calls, " "); got != "off" {
		t.Errorf("calls %s", got)
	}
}

func TestAdoptionThatCannotBe(t *testing.T) {
	for name, tc := range map[string]struct {
		pool *karpv1.NodePool
		node func(*corev1.Node)
		want string
	}{
		"no NodePool": {pool: nodePool("other"), want: `there is no NodePool "edge"`},
		"another node class": {pool: func() *karpv1.NodePool {
			p := nodePool("edge")
			p.Spec.Template.Spec.NodeClassRef.Kind = "KWOKNodeClass"
			return p
		}(), want: "it must be an InventoryNodeClass"},
		"no node class": {pool: func() *karpv1.NodePool {
			p := nodePool("edge")
			p.Spec.Template.Spec.NodeClassRef.Name = "none"
			return p
		}(), want: `no InventoryNodeClass "none"`},
		"other requirements":  {pool: nodePool("edge", requires(corev1.LabelTopologyZone, "moon")), want: `NodePool "edge" does not take the machine`},
		"another provider ID": {pool: nodePool("edge"), node: func(n *corev1.Node) { n.Spec.ProviderID = "k3s://m1" }, want: `has provider ID "k3s://m1", which cannot be changed; it must be "inventory://m1"`},
		"not Ready":           {pool: nodePool("edge"), node: func(n *corev1.Node) { n.Status.Conditions = nil }, want: "is not Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, machine("m1", adoptInto("edge")), tc.pool)
			if tc.node == nil {
				tc.node = func(*corev1.Node) {}
			}
			w.join("m1", tc.node)
			w.settle("m1")
			w.expectReason("m1", v1alpha1.ReasonMachineNotAdoptable)
			if c := w.condition("m1", v1alpha1.ConditionMachineAvailable); !strings.Contains(c.Message, tc.want) {
				t.Errorf("message %q, want %q", c.Message, tc.want)
			}
			claims := &karpv1.NodeClaimList{}
			if err := w.client.List(t.Context(), claims); err != nil || len(claims.Items) != 0 {
				t.Errorf("NodeClaims %v, %v", claims.Items, err)
			}
		})
	}
}

// A Node that joins with another machine's identity is none of this machine's.
func TestANodeWithAnotherProviderID(t *testing.T) {
	w := newWorld(t, machine("m1"), nodePool("edge"))
	w.settle("m1")
	claim := nodeClaim("a")
	w.mustLaunch(claim)
	w.settle("m1")
	w.join("m1", func(n *corev1.Node) { n.Spec.ProviderID = "k3s://m1" })
	w.settle("m1")
	m := w.machine("m1")
	if m.Status.Failures != 1 || !strings.Contains(m.Status.LastFailure, `it must be "inventory://m1"`) {
		t.Errorf("status %+v", m.Status)
	}
}

func TestMachinesThatAreOne(t *testing.T) {
	board := func(endpoint, system string) func(*inventory.Machine) {
		return func(m *inventory.Machine) {
			m.Spec.Power = v1alpha1.MachinePower{Redfish: &v1alpha1.RedfishPower{Endpoint: endpoint, System: system}}
		}
	}
	w := newWorld(t, machine("m1"), machine("m2", func(m *inventory.Machine) { m.Spec.NodeName = "m1" }),
		machine("m3", board("https://bmc", "1")), machine("m4", board("https://bmc", "2")), machine("m5", board("https://bmc", "1")))
	w.settle("m1", "m2", "m3", "m4", "m5")
	for name, want := range map[string]string{"m1": "Free", "m2": "Invalid", "m3": "Free", "m4": "Free", "m5": "Invalid"} {
		w.expectPhase(name, want)
	}
}
