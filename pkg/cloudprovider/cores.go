package cloudprovider

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// CoresOf reads back the real-time cores that a node of the instance type will offer; none for ordinary machines.
func CoresOf(it *cloudprovider.InstanceType) ([]rt.Core, error) {
	var out []rt.Core
	for _, template := range it.DynamicResources.ResourceSliceTemplates {
		if template.Driver.Value() != v1alpha1.DriverCPU {
			continue
		}
		for _, d := range template.Devices {
			core, err := rtdra.CoreOf(resourcev1.Device{
				Name: d.Name.Value(), Attributes: d.Attributes, Capacity: d.Capacity, AllowMultipleAllocations: ptr.To(d.AllowMultipleAllocations),
			})
			if err != nil {
				return nil, fmt.Errorf("reading the cores of instance type %s: %w", it.Name, err)
			}
			out = append(out, core)
		}
	}
	return out, nil
}
