package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	karptest "sigs.k8s.io/karpenter/pkg/test"
)

// Of three nodes one is closed: what budgets leave beside it is told, and where they would not have it closed at all, too.
func TestBudgetsTellHowFarTheyAreExceeded(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	index := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
	api := crfake.NewClientBuilder().WithIndex(&corev1.Pod{}, "spec.nodeName", index).Build()
	cluster := state.NewCluster(clk, api, fake.NewCloudProvider())
	pools := []*karpv1.NodePool{}
	for name, budget := range map[string]string{"none": "0", "one": "1", "two": "2"} {
		pool := karptest.NodePool()
		pool.Name, pool.Spec.Disruption.Budgets = name, []karpv1.Budget{{Nodes: budget}}
		pools = append(pools, pool)
		for _, node := range []string{"a", "b", "c"} {
			claim := &karpv1.NodeClaim{}
			claim.Name, claim.Labels = name+"-"+node, map[string]string{karpv1.NodePoolLabelKey: name}
			claim.Status.ProviderID, claim.Status.NodeName = "fake:///"+claim.Name, claim.Name
			cluster.UpdateNodeClaim(claim)
			there := &corev1.Node{}
			there.Name, there.Spec.ProviderID = claim.Name, claim.Status.ProviderID
			there.Labels = map[string]string{karpv1.NodePoolLabelKey: name, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true"}
			there.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if err := cluster.UpdateNode(t.Context(), there); err != nil {
				t.Fatal(err)
			}
		}
		cluster.MarkForDeletion("fake:///" + name + "-a")
	}
	got := allowed(clk, pools, cluster)
	for name, want := range map[string]int{"none": -1, "one": 0, "two": 1} {
		if got[name].Nodes != want {
			t.Errorf("NodePool %s, of which a node is closed, lets %d more go, want %d", name, got[name].Nodes, want)
		}
	}
}
