package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	karpenter "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/metrics"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/state"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// decorate puts every decorator of the controller around the bare provider: our knowledge of its
// machines, metrics, and NodeOverlays with one overlay in force.
func decorate(ctx context.Context, bare *fake.CloudProvider, kube client.Client) (karpenter.CloudProvider, error) {
	machines, err := knowledgeOf(bare.InstanceTypes)
	if err != nil {
		return nil, err
	}
	known := metrics.Decorate(cloudprovider.Decorate(bare, machines))
	surcharge := &v1alpha1.NodeOverlay{
		ObjectMeta: metav1.ObjectMeta{Name: "spot-surcharge"},
		Spec: v1alpha1.NodeOverlaySpec{
			Requirements:    []v1alpha1.NodeSelectorRequirement{{Key: "karpenter.sh/capacity-type", Operator: corev1.NodeSelectorOpIn, Values: []string{"spot"}}},
			PriceAdjustment: new("+5%"),
		},
	}
	if err := kube.Create(ctx, surcharge); err != nil {
		return nil, fmt.Errorf("creating the overlay: %w", err)
	}
	store := nodeoverlay.NewInstanceTypeStore()
	overlays := nodeoverlay.NewController(clock.RealClock{}, kube, known, store, state.NewCluster(clock.RealClock{}, kube, known))
	if _, err := overlays.Reconcile(ctx, reconcile.Request{}); err != nil {
		return nil, fmt.Errorf("evaluating the overlay: %w", err)
	}
	return overlay.Decorate(known, kube, store), nil
}

// knowledgeOf describes each of the types in our catalogue, every tenth with real-time cores.
func knowledgeOf(types []*karpenter.InstanceType) (*catalogue.Catalogue, error) {
	var b strings.Builder
	b.WriteString("sources: {bench: made for the benchmark}\nzones: [test-zone-1]\ninstanceTypes:\n")
	for i, it := range types {
		cpus := max(1, int(it.Capacity.Cpu().Value()))
		fmt.Fprintf(&b, `- {name: %s, class: general, family: bench, architecture: amd64, cpu: %d, memoryGiB: %d, pods: 110, ephemeralGiB: 20,
   price: {onDemand: 1, spot: 0.7, source: bench}, watts: {idle: %d, max: %d, source: bench}`, it.Name, cpus, 2*cpus, cpus, 4*cpus)
		if i%10 == 9 && cpus > 1 {
			fmt.Fprintf(&b, ", rt: {numaNodes: 1, coresPerNuma: %d, smt: false, housekeeping: [0], bandwidthPpm: 950000, source: bench}", cpus)
		}
		b.WriteString("}\n")
	}
	return catalogue.Parse("benchmark catalogue", []byte(b.String()))
}
