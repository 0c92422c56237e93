package rtdra

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
)

// DeviceClass is the class of the cores of every node.
func DeviceClass() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DeviceClassRTCore},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
			selector(fmt.Sprintf("device.driver == %q", v1alpha1.DriverCPU)),
		}},
	}
}

// DeviceName is the name of a core's device.
func DeviceName(core int) string { return fmt.Sprintf("core-%d", core) }

// Device is what a node publishes for a core whose budgets the backend enforces. A claim that names no
// bandwidth takes the whole core.
func Device(core rt.Core, backend string) resourcev1.Device {
	return resourcev1.Device{
		Name:                     DeviceName(core.ID),
		AllowMultipleAllocations: ptr.To(true),
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			v1alpha1.AttributeCoreID:            {IntValue: ptr.To(int64(core.ID))},
			v1alpha1.AttributeNUMANode:          {IntValue: ptr.To(int64(core.NUMA))},
			v1alpha1.AttributeSMTSibling:        {IntValue: ptr.To(int64(core.Sibling))},
			v1alpha1.AttributeGranularity:       {IntValue: ptr.To(core.Granularity)},
			v1alpha1.AttributeEscalationReserve: {IntValue: ptr.To(int64(core.EscalationReserve))},
			v1alpha1.AttributeBackend:           {StringValue: ptr.To(backend)},
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
			v1alpha1.CapacityRTBandwidth: {Value: *resource.NewQuantity(int64(core.Capacity), resource.DecimalSI)},
		},
	}
}

// CoreOf reads a device of our driver back into the core that it stands for. A missing sibling means
// none, a missing NUMA node or escalation reserve 0; the others must be there.
func CoreOf(d resourcev1.Device) (rt.Core, error) {
	id, err := number(d, v1alpha1.AttributeCoreID)
	if err != nil {
		return rt.Core{}, err
	}
	granularity, err := number(d, v1alpha1.AttributeGranularity)
	if err != nil {
		return rt.Core{}, err
	}
	capacity, ok := d.Capacity[v1alpha1.CapacityRTBandwidth]
	if !ok {
		return rt.Core{}, fmt.Errorf("device %s has no capacity %s", d.Name, v1alpha1.CapacityRTBandwidth)
	}
	return rt.Core{
		ID: int(id), NUMA: int(numberOr(d, v1alpha1.AttributeNUMANode, 0)),
		Sibling:           int(numberOr(d, v1alpha1.AttributeSMTSibling, rt.NoSibling)),
		Capacity:          rt.PPM(capacity.Value.Value()),
		EscalationReserve: rt.PPM(numberOr(d, v1alpha1.AttributeEscalationReserve, 0)),
		Granularity:       granularity,
		Policy:            rt.PolicyOf(BackendOf(d)),
	}, nil
}

// BackendOf is the device's attribute backend; empty without one.
func BackendOf(d resourcev1.Device) string {
	if value := d.Attributes[v1alpha1.AttributeBackend].StringValue; value != nil {
		return *value
	}
	return ""
}

func number(d resourcev1.Device, attribute resourcev1.QualifiedName) (int64, error) {
	value := d.Attributes[attribute].IntValue
	if value == nil || *value < 0 {
		return 0, fmt.Errorf("device %s: attribute %s must be a number from 0", d.Name, attribute)
	}
	return *value, nil
}

func numberOr(d resourcev1.Device, attribute resourcev1.QualifiedName, otherwise int64) int64 {
	if value := d.Attributes[attribute].IntValue; value != nil {
		return *value
	}
	return otherwise
}
