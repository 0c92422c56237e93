package simulated_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
)

func launchedWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := newWorld(t, interceptor.Funcs{}, append(objects, nodePool("pool"))...)
	w.create(t, nodeClaim("claim", "pool"))
	if err := w.launch("claim"); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestNodeJoinsAfterTheRegistrationDelay(t *testing.T) {
	w := launchedWorld(t)
	if result := w.reconcile(t, w.provider.Registrar(), "claim"); result.RequeueAfter != 10*time.Second || len(w.nodes(t)) != 0 {
		t.Fatalf("at launch: result %+v, %d Nodes", result, len(w.nodes(t)))
	}
	w.clock.Step(10 * time.Second)
	w.restart(t)
	w.reconcile(t, w.provider.Registrar(), "claim")
	w.reconcile(t, w.provider.Registrar(), "claim")
	nodes := w.nodes(t)
	if len(nodes) != 1 {
		t.Fatalf("%d Nodes, want 1", len(nodes))
	}
	node, claim := nodes[0], w.claim(t, "claim")
	if node.Spec.ProviderID != claim.Status.ProviderID {
		t.Errorf("provider ID %q, want %q", node.Spec.ProviderID, claim.Status.ProviderID)
	}
	if node.Annotations[kwokapi.KwokLabelKey] != kwokapi.KwokLabelValue || node.Annotations[v1alpha1.AnnotationPricePerHour] == "" {
		t.Errorf("annotations %v", node.Annotations)
	}
	if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != karpv1.UnregisteredTaintKey {
		t.Errorf("taints %v", node.Spec.Taints)
	}
	if node.Status.Capacity.Cpu().String() != "2" || node.Labels[corev1.LabelInstanceTypeStable] != "small" {
		t.Errorf("capacity %v, labels %v", node.Status.Capacity, node.Labels)
	}
	if len(node.OwnerReferences) != 1 || node.OwnerReferences[0].UID != claim.UID || node.OwnerReferences[0].APIVersion != "karpenter.sh/v1" {
		t.Errorf("owners %v", node.OwnerReferences)
	}
}

func TestRegisteredNodeClaimGetsNoSecondNode(t *testing.T) {
	w := launchedWorld(t)
	w.clock.Step(10 * time.Second)
	w.reconcile(t, w.provider.Registrar(), "claim")
	if err := w.register("claim"); err != nil {
		t.Fatal(err)
	}
	node := w.nodes(t)[0]
	if err := w.client.Delete(context.Background(), &node); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t, w.provider.Registrar(), "claim")
	if len(w.nodes(t)) != 0 {
		t.Error("a Node that was deleted after registration is back")
	}
	// Its machine is gone, so that Karpenter's garbage collection takes the NodeClaim.
	if machines, err := w.provider.List(context.Background()); err != nil || len(machines) != 0 {
		t.Errorf("List: %v, %v", machines, err)
	}
}

func TestOrphanedNodesAreRemoved(t *testing.T) {
	w := launchedWorld(t)
	w.clock.Step(10 * time.Second)
	w.reconcile(t, w.provider.Registrar(), "claim")
	orphan := w.nodes(t)[0].DeepCopy()
	deleteClaim(t, w, "claim")
	w.reconcile(t, w.provider.Registrar(), "claim")
	if n := len(w.nodes(t)); n != 0 {
		t.Fatalf("%d Nodes without NodeClaim", n)
	}
	// The same name again, as another NodeClaim: the Node of the first is no Node of the second.
	orphan.ResourceVersion = ""
	w.create(t, orphan)
	second := nodeClaim("claim", "pool")
	second.UID = types.UID("second")
	w.create(t, second)
	if err := w.launch("claim"); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(10 * time.Second)
	w.reconcile(t, w.provider.Registrar(), "claim")
	nodes := w.nodes(t)
	if len(nodes) != 1 || nodes[0].Spec.ProviderID != w.claim(t, "claim").Status.ProviderID {
		t.Errorf("Nodes %v", nodes)
	}
}

func TestSlowRegistration(t *testing.T) {
	w := launchedWorld(t, fault("slow", v1alpha1.SimulatedFaultSpec{
		Type: v1alpha1.FaultSlowRegistration, Delay: &metav1.Duration{Duration: time.Minute}, Count: ptr.To[int32](1),
	}))
	w.create(t, nodeClaim("other", "pool"))
	if err := w.launch("other"); err != nil {
		t.Fatal(err)
	}
	if result := w.reconcile(t, w.provider.Registrar(), "claim"); result.RequeueAfter != 70*time.Second {
		t.Errorf("struck NodeClaim: %+v, want after 70s", result)
	}
	w.restart(t)
	if result := w.reconcile(t, w.provider.Registrar(), "other"); result.RequeueAfter != 10*time.Second {
		t.Errorf("second NodeClaim of a fault that counts to one: %+v, want after 10s", result)
	}
	w.clock.Step(70 * time.Second)
	w.reconcile(t, w.provider.Registrar(), "claim")
	if n := len(w.nodes(t)); n != 1 {
		t.Errorf("%d Nodes", n)
	}
}

func TestFailedRegistration(t *testing.T) {
	for _, tc := range []struct {
		name  string
		delay *metav1.Duration
		gone  bool
	}{
		{"hangs", nil, false},
		{"dies", &metav1.Duration{Duration: 30 * time.Second}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := launchedWorld(t, fault("fail", v1alpha1.SimulatedFaultSpec{Type: v1alpha1.FaultFailedRegistration, Delay: tc.delay}))
			w.clock.Step(time.Minute)
			w.reconcile(t, w.provider.Registrar(), "claim")
			if n := len(w.nodes(t)); n != 0 {
				t.Errorf("%d Nodes", n)
			}
			if deleted := !w.claim(t, "claim").DeletionTimestamp.IsZero(); deleted != tc.gone {
				t.Errorf("NodeClaim deleted: %v, want %v", deleted, tc.gone)
			}
			if tc.gone {
				return
			}
			if err := w.client.Delete(context.Background(), w.fault(t, "fail")); err != nil {
				t.Fatal(err)
			}
			w.reconcile(t, w.provider.Registrar(), "claim")
			if n := len(w.nodes(t)); n != 1 {
				t.Errorf("%d Nodes after the fault, want 1", n)
			}
		})
	}
}

func TestNames(t *testing.T) {
	long := fmt.Sprintf("%0100d", 7)
	for _, name := range []string{"a", "general-x7k2p", long} {
		node := simulated.NodeName(name, "uid-1")
		if got := simulated.ClaimOf(node); got != name {
			t.Errorf("ClaimOf(%q) is %q, want %q", node, got, name)
		}
		if simulated.NodeName(name, "uid-2") == node {
			t.Errorf("two UIDs, one Node name %q", node)
		}
		if got := simulated.Hostname(node); len(got) > 63 || got == "" {
			t.Errorf("hostname %q", got)
		}
	}
	if got := simulated.ClaimOf("x"); got != "" {
		t.Errorf("ClaimOf(x) is %q", got)
	}
}
