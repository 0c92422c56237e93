package simulated_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/simulated"
)

// A NodePool that names what only Karpenter's kwok provider has is offered that, and a machine of it is launched; others are offered what they were.
func TestMachinesOfKarpentersKwokProviderByName(t *testing.T) {
	w := newWorld(t, interceptor.Funcs{})
	machines, err := catalogue.Default()
	if err != nil {
		t.Fatal(err)
	}
	types, err := simulated.InstanceTypes(t.Context(), machines)
	if err != nil {
		t.Fatal(err)
	}
	named, err := simulated.KwokInstanceTypes(machines)
	if err != nil {
		t.Fatal(err)
	}
	w.provider, err = simulated.New(t.Context(), simulated.Options{
		Client: w.process, Clock: w.clock, Recorder: w.recorder, Catalogue: machines, InstanceTypes: types, Named: named,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		pool *karpv1.NodePool
		want bool
	}{
		"nothing named":                  {nodePool("p"), false},
		"what the catalogue has":         {nodePool("p", requires(corev1.LabelInstanceTypeStable, "c-64x-amd64-linux"), requires(corev1.LabelOSStable, "linux")), false},
		"Windows":                        {nodePool("p", requires(corev1.LabelOSStable, "windows")), true},
		"Windows as label":               {labelled(nodePool("p"), corev1.LabelOSStable, "windows"), true},
		"a type":                         {nodePool("p", requires(corev1.LabelInstanceTypeStable, "c-64x-amd64-linux", "c-32x-arm64-linux")), true},
		"a size":                         {nodePool("p", requires(kwokapi.InstanceSizeLabelKey, "256")), true},
		"a size that none has":           {nodePool("p", requires(kwokapi.InstanceSizeLabelKey, "257")), false},
		"all but a size":                 {nodePool("p", karpv1.NodeSelectorRequirementWithMinValues{Key: kwokapi.InstanceSizeLabelKey, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"256"}}), false},
		"an architecture, which all are": {nodePool("p", requires(corev1.LabelArchStable, "arm64")), false},
		"no NodePool":                    {nil, true},
	} {
		offered := w.types(t, tc.pool)
		for _, it := range named {
			if _, got := offered[it.Name]; got != tc.want {
				t.Errorf("%s: %s is offered: %t, want %t", name, it.Name, got, tc.want)
			}
		}
		if offered["c-1x-amd64-linux"] == nil {
			t.Errorf("%s: the catalogue's own machines are not offered", name)
		}
	}
	for _, want := range []string{"c-1x-amd64-windows", "c-96x-amd64-linux", "m-192x-amd64-linux", "s-256x-arm64-windows", "c-1x-arm64-linux", "m-32x-arm64-linux"} {
		if !slices.ContainsFunc(named, func(it *karpcloud.InstanceType) bool { return it.Name == want }) {
			t.Errorf("%s of Karpenter's kwok provider is not there", want)
		}
	}
	claim := nodeClaim("big", "p", requires(corev1.LabelInstanceTypeStable, "s-256x-arm64-windows"))
	launched, err := w.provider.Create(context.Background(), claim)
	if err != nil {
		t.Fatal(err)
	}
	if got := launched.Labels[corev1.LabelInstanceTypeStable] + " " + launched.Labels[corev1.LabelOSStable]; got != "s-256x-arm64-windows windows" {
		t.Errorf("launched %s", got)
	}
}
