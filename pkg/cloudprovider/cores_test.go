package cloudprovider_test

import (
	"slices"
	"testing"
	"unique"

	resourcev1 "k8s.io/api/resource/v1"
	karpcloud "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

func machine(driver string, devices ...resourcev1.Device) *karpcloud.InstanceType {
	template := &karpcloud.ResourceSliceTemplate{Driver: unique.Make(driver)}
	for _, d := range devices {
		template.Devices = append(template.Devices, karpcloud.Device{Name: unique.Make(d.Name), Attributes: d.Attributes, Capacity: d.Capacity})
	}
	return &karpcloud.InstanceType{Name: "m", DynamicResources: karpcloud.DynamicResources{ResourceSliceTemplates: []*karpcloud.ResourceSliceTemplate{template}}}
}

func TestCoresOfAMachineAreThoseThatItsNodeWillPublish(t *testing.T) {
	want := []rt.Core{
		{ID: 2, NUMA: 1, Sibling: 3, Capacity: 800_000, EscalationReserve: 50_000, Granularity: 100, Policy: rt.FixedPriority},
		{ID: 3, Sibling: rt.NoSibling, Capacity: 700_000, Granularity: 50, Policy: rt.FixedPriority},
	}
	it := machine(v1alpha1.DriverCPU, rtdra.Device(want[0], "rtgroup"), rtdra.Device(want[1], "rtgroup"))
	if got, err := cloudprovider.CoresOf(it); err != nil || !slices.Equal(got, want) {
		t.Errorf("cores are %+v, %v, want %+v", got, err, want)
	}
	if got, err := cloudprovider.CoresOf(machine("gpu.example.com", resourcev1.Device{Name: "gpu-0"})); err != nil || len(got) != 0 {
		t.Errorf("a GPU was taken for cores %+v, %v", got, err)
	}
	if _, err := cloudprovider.CoresOf(machine(v1alpha1.DriverCPU, resourcev1.Device{Name: "core-0"})); err == nil {
		t.Error("a core without attributes was read")
	}
}
