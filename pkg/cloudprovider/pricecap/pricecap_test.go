package pricecap_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/pricecap"
)

// Offerings above the cap are unavailable, and those whose price says nothing are. No type goes: its zones are those that
// pods spread over.
func TestOfferingsAboveTheCapAreWithdrawn(t *testing.T) {
	prices := []float64{1, 2, 3, 0, -1, math.NaN(), math.Inf(1)}
	inner := fake.NewCloudProvider()
	inner.InstanceTypes = nil
	for i, price := range prices {
		inner.InstanceTypes = append(inner.InstanceTypes, fake.NewInstanceType(fmt.Sprint(i), fake.WithOfferings(karpcloud.Offering{
			Price: price, Available: true, Requirements: scheduling.NewLabelRequirements(map[string]string{
				karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand, corev1.LabelTopologyZone: "test-zone-1",
			}),
		})))
	}
	provider := pricecap.Decorate(inner)
	for _, test := range []struct {
		most float64 // 0: no cap
		want []string
	}{
		{0, []string{"0", "1", "2", "3", "4", "5", "6"}}, {math.Inf(1), []string{"0", "1", "2"}}, {2, []string{"0", "1"}}, {0.5, nil},
	} {
		ctx := t.Context()
		if test.most > 0 {
			ctx = pricecap.WithCap(ctx, test.most)
		}
		types, err := provider.GetInstanceTypes(ctx, &karpv1.NodePool{})
		if err != nil || len(types) != len(prices) {
			t.Fatalf("%d types, %v", len(types), err)
		}
		var got []string
		for _, it := range types {
			if len(it.Offerings.Available()) > 0 {
				got = append(got, it.Name)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("up to %g there are %v, want %v", test.most, got, test.want)
		}
	}
	for _, it := range inner.InstanceTypes {
		if !it.Offerings[0].Available {
			t.Errorf("offering of %s has changed in the provider's own list", it.Name)
		}
	}
}
