package pricecap_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/pricecap"
)

func offering(price float64, available bool) karpcloud.Offering {
	return karpcloud.Offering{Price: price, Available: available, Requirements: scheduling.NewLabelRequirements(map[string]string{
		karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeOnDemand, corev1.LabelTopologyZone: "test-zone-1",
	})}
}

// A type is as dear as its cheapest offering that can be launched. One of which none can be launched stays.
func TestTypesAboveTheCapAreLeftOut(t *testing.T) {
	inner := fake.NewCloudProvider()
	inner.InstanceTypes = []*karpcloud.InstanceType{
		fake.NewInstanceType("cheap", fake.WithOfferings(offering(1, true))),
		fake.NewInstanceType("dear", fake.WithOfferings(offering(3, true))),
		fake.NewInstanceType("sold-out", fake.WithOfferings(offering(9, false))),
		fake.NewInstanceType("dear-for-now", fake.WithOfferings(offering(1, false), offering(3, true))),
		fake.NewInstanceType("both", fake.WithOfferings(offering(9, true), offering(2, true))),
	}
	provider := pricecap.Decorate(inner)
	for _, test := range []struct {
		most float64 // 0: no cap
		want []string
	}{
		{0, []string{"cheap", "dear", "sold-out", "dear-for-now", "both"}},
		{3, []string{"cheap", "dear", "sold-out", "dear-for-now", "both"}},
		{2, []string{"cheap", "sold-out", "both"}},
		{0.5, []string{"sold-out"}},
	} {
		ctx := t.Context()
		if test.most > 0 {
			ctx = pricecap.WithCap(ctx, test.most)
		}
		types, err := provider.GetInstanceTypes(ctx, &karpv1.NodePool{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, it := range types {
			got = append(got, it.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("up to %g: %v, want %v", test.most, got, test.want)
		}
	}
	if len(inner.InstanceTypes) != 5 || inner.InstanceTypes[1].Name != "dear" {
		t.Error("the provider's own list has changed")
	}
}
