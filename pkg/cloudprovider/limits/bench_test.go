package limits_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/limits"
	"github.com/mainspring-rt/mainspring/pkg/test"
	"github.com/mainspring-rt/mainspring/pkg/test/sampling"
)

// lists answers as a cache does, without a copy.
type lists struct {
	client.Reader
	costs  []kcloudv1alpha1.CostPolicy
	pools  []karpenterv1.NodePool
	claims []karpenterv1.NodeClaim
}

func (l *lists) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *kcloudv1alpha1.CostPolicyList:
		list.Items = l.costs
	case *karpenterv1.NodePoolList:
		list.Items = l.pools
	case *karpenterv1.NodeClaimList:
		list.Items = l.claims
	}
	return nil
}

// BenchmarkLimits measures a plan and a launch with 1,000 machines and 800 instance types, and a plan without policies.
func BenchmarkLimits(b *testing.B) {
	np := pool("a")
	c := &cloud{random: sampling.Rand(b), launched: map[types.UID]*karpenterv1.NodeClaim{}}
	for i := range 800 {
		c.types = append(c.types, machine(fmt.Sprint("m", i), 1+i%64, 1+float64(i)/100))
	}
	l := &lists{pools: []karpenterv1.NodePool{*np}}
	for i := range 1000 {
		l.claims = append(l.claims, karpenterv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)), Labels: map[string]string{
				karpenterv1.NodePoolLabelKey: "a", corev1.LabelInstanceTypeStable: fmt.Sprint("m", i%800), karpenterv1.CapacityTypeLabelKey: "on-demand", corev1.LabelTopologyZone: "z",
				mckubev1alpha1.LabelWattsIdle: "1", mckubev1alpha1.LabelWattsMax: "100",
			}},
			Status: karpenterv1.NodeClaimStatus{ProviderID: fmt.Sprint("id://", i)},
		})
	}
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC))
	p := limits.Decorate(c, l, &world{}, clock)
	plan := func(b *testing.B, pause time.Duration) {
		b.ReportAllocs()
		for b.Loop() {
			clock.SetTime(clock.Now().Add(pause))
			if _, err := p.GetInstanceTypes(b.Context(), np); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("plan without policies", func(b *testing.B) { plan(b, time.Second) })
	l.costs = []kcloudv1alpha1.CostPolicy{*test.CostPolicy("all", costsAtMost(1e6))}
	b.Run("plan anew", func(b *testing.B) { plan(b, time.Second) })
	b.Run("plan again", func(b *testing.B) { plan(b, 0) })
	b.Run("launch", func(b *testing.B) {
		for b.Loop() {
			claim := &karpenterv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "new", UID: "new", Labels: map[string]string{karpenterv1.NodePoolLabelKey: "a"}}}
			if _, err := p.Create(b.Context(), claim); err != nil && !cloudprovider.IsInsufficientCapacityError(err) {
				b.Fatal(err)
			}
			clear(c.launched)
		}
	})
}
