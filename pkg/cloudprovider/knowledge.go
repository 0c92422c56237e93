package cloudprovider

import (
	"maps"
	"unique"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// corePool begins the name of the pool of template devices, which the instance type ends: Karpenter asks only once
// whether the device of a name in a pool is what a claim selects, and cores of one number differ between machines. The pool
// that a node publishes bears the node's name.
const corePool = "cores-"

// withKnowledge returns a new instance type: it, and what the catalogue knows about the machine.
// What the new one shares with it is never written to.
func withKnowledge(it *cloudprovider.InstanceType, machines *catalogue.Catalogue) *cloudprovider.InstanceType {
	machine, known := machines.Lookup(it.Name)
	if !known {
		machine = &catalogue.InstanceType{}
	}
	return &cloudprovider.InstanceType{
		Name:                   it.Name,
		Requirements:           requirements(it.Requirements, machine),
		Offerings:              offerings(it.Offerings, machine),
		Capacity:               it.Capacity,
		VolumeAttachmentLimits: it.VolumeAttachmentLimits,
		DynamicResources:       dynamicResources(it, machine),
		Overhead:               it.Overhead,
	}
}

// offerings are the inner provider's at the prices that the catalogue gives for the machine. An
// offering without a price there keeps its own; so does every one whose price is the same already.
func offerings(inner cloudprovider.Offerings, machine *catalogue.InstanceType) cloudprovider.Offerings {
	outer := make(cloudprovider.Offerings, len(inner))
	for i, offering := range inner {
		outer[i] = offering
		price := priceOf(machine, offering.CapacityType())
		if price == 0 || price == offering.Price {
			continue
		}
		priced := *offering
		priced.Price = price
		outer[i] = &priced
	}
	return outer
}

// priceOf is the machine's price in USD per hour; 0 where the catalogue gives none.
func priceOf(machine *catalogue.InstanceType, capacityType string) float64 {
	switch capacityType {
	case karpv1.CapacityTypeOnDemand:
		return machine.Price.OnDemand
	case karpv1.CapacityTypeSpot:
		return machine.Price.Spot
	case karpv1.CapacityTypeReserved:
		if machine.Reserved != nil {
			return machine.Reserved.Price
		}
	}
	return 0
}

// requirements defines all our labels. What the inner provider says about one of them stands.
func requirements(inner scheduling.Requirements, machine *catalogue.InstanceType) scheduling.Requirements {
	all := make(scheduling.Requirements, len(inner)+len(machineLabels))
	maps.Copy(all, inner)
	labels := labelsOf(machine)
	for _, key := range machineLabels {
		if _, ok := inner[key]; ok {
			continue
		}
		if value := labels[key]; value != "" {
			all[key] = scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, value)
		} else {
			all[key] = scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist)
		}
	}
	return all
}

// labelsOf maps our labels to their values for a machine; a label without value is absent.
func labelsOf(machine *catalogue.InstanceType) map[string]string {
	labels := map[string]string{v1alpha1.LabelHardwareClass: string(machine.Class)}
	if machine.GPUs != nil {
		labels[v1alpha1.LabelGPUModel] = machine.GPUs.Model
	}
	if machine.NPUs != nil {
		labels[v1alpha1.LabelNPUModel] = machine.NPUs.Model
	}
	if watts, known := machine.Watts.Machine(); known {
		maps.Copy(labels, watts.Labels())
	}
	return labels
}

// dynamicResources adds the real-time cores to the devices that the inner provider declares. An
// inner provider that declares cores itself is believed.
func dynamicResources(it *cloudprovider.InstanceType, machine *catalogue.InstanceType) cloudprovider.DynamicResources {
	inner := it.DynamicResources
	if machine.RT == nil {
		return inner
	}
	templates := make([]*cloudprovider.ResourceSliceTemplate, 0, len(inner.ResourceSliceTemplates)+1)
	for _, template := range inner.ResourceSliceTemplates {
		if template.Driver.Value() == v1alpha1.DriverCPU {
			return inner
		}
		templates = append(templates, template)
	}
	templates = append(templates, &cloudprovider.ResourceSliceTemplate{
		Driver:  unique.Make(v1alpha1.DriverCPU),
		Pool:    cloudprovider.ResourcePool{Name: unique.Make(corePool + it.Name)},
		Devices: templateDevices(machine.RT.Devices()),
	})
	return cloudprovider.DynamicResources{ResourceSliceTemplates: templates, AttributeBindings: inner.AttributeBindings}
}

// templateDevices are the devices that a node of the machine will publish.
func templateDevices(published []resourcev1.Device) []cloudprovider.Device {
	devices := make([]cloudprovider.Device, len(published))
	for i, d := range published {
		devices[i] = cloudprovider.Device{
			Name:                     unique.Make(d.Name),
			Attributes:               d.Attributes,
			Capacity:                 d.Capacity,
			AllowMultipleAllocations: ptr.Deref(d.AllowMultipleAllocations, false),
		}
	}
	return devices
}
