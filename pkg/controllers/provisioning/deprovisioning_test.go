package provisioning_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpfake "sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	static "sigs.k8s.io/karpenter/pkg/controllers/static/deprovisioning"
	karptest "sigs.k8s.io/karpenter/pkg/test"

	"github.com/mainspring-rt/mainspring/pkg/controllers/provisioning"
)

// A node of a static NodePool is replaced. Its NodeClaim is updated after Karpenter has marked it, which takes the mark off: the replacement stays all the
// same. Without that mark one is too many, and goes, so the test would notice if Karpenter counted otherwise.
func TestTheReplacementInAStaticPoolIsNotOneTooMany(t *testing.T) {
	for name, replaced := range map[string]bool{"one is replaced": true, "one is too many": false} {
		t.Run(name, func(t *testing.T) {
			pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}}
			pool.Spec.Replicas = ptr.To[int64](2)
			pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.test.sh", Kind: "TestNodeClass", Name: "fixed"}
			objects := []client.Object{pool}
			claims := []*karpv1.NodeClaim{{}, {}, {}}
			for i, claim := range claims {
				claim.Name, claim.Labels = fmt.Sprintf("fixed-%d", i), map[string]string{karpv1.NodePoolLabelKey: pool.Name}
				claim.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(i-10) * time.Minute))
				claim.Spec.NodeClassRef = pool.Spec.Template.Spec.NodeClassRef
				objects = append(objects, claim)
			}
			if replaced {
				claims[0].StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDisruptionReason, "Drifted", "Drifted")
			}
			byProvider := func(o client.Object) []string { return []string{o.(*karpv1.NodeClaim).Status.ProviderID} }
			byNode := func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }
			api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithStatusSubresource(pool, &karpv1.NodeClaim{}).
				WithIndex(&karpv1.NodeClaim{}, "status.providerID", byProvider).WithIndex(&corev1.Pod{}, "spec.nodeName", byNode).Build()
			clk, provider := clocktesting.NewFakeClock(time.Now()), karpfake.NewCloudProvider()
			cluster := state.NewCluster(clk, api, provider)
			for _, claim := range claims {
				cluster.UpdateNodeClaim(claim)
			}
			d := provisioning.NewDeprovisioning(provisioning.DeprovisioningDependencies{Client: api, CloudProvider: provider, Cluster: cluster},
				static.NewController(api, cluster, provider, clk, karptest.NewEventRecorder()))
			if _, err := d.Reconcile(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			list := &karpv1.NodeClaimList{}
			if err := api.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, claim := range list.Items {
				left = append(left, claim.Name)
			}
			if want := map[bool]int{true: 3, false: 2}[replaced]; len(left) != want || replaced && !slices.Contains(left, "fixed-2") {
				t.Errorf("left are %v, want %d", left, want)
			}
		})
	}
}
