package simulated

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kwokapi "sigs.k8s.io/karpenter/kwok/apis/v1alpha1"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	kwokoptions "sigs.k8s.io/karpenter/kwok/options"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// InstanceTypes makes the instance types of a catalogue. Where the context's options name a file of
// instance types in the JSON of Karpenter's kwok provider (--instance-types-file-path), that file
// replaces them.
func InstanceTypes(ctx context.Context, c *catalogue.Catalogue) ([]*cloudprovider.InstanceType, error) {
	if o := kwokoptions.FromContext(ctx); o != nil && o.InstanceTypesFilePath != "" {
		types, err := kwok.ConstructInstanceTypes(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading instance types from %s: %w", o.InstanceTypesFilePath, err)
		}
		if err := usable(types); err != nil {
			return nil, fmt.Errorf("reading instance types from %s: %w", o.InstanceTypesFilePath, err)
		}
		return types, nil
	}
	types := make([]*cloudprovider.InstanceType, len(c.InstanceTypes))
	for i, machine := range c.InstanceTypes {
		types[i] = newInstanceType(machine)
	}
	return types, nil
}

// usable refuses what Karpenter's loader lets pass and nothing can be launched from.
func usable(types []*cloudprovider.InstanceType) error {
	if len(types) == 0 {
		return errors.New("the list is empty; it must hold at least one instance type")
	}
	names := map[string]bool{}
	for i, it := range types {
		switch {
		case it.Name == "":
			return fmt.Errorf("[%d].name is empty; it must be a label value", i)
		case names[it.Name]:
			return fmt.Errorf("[%d].name is %q, as an entry before; names must differ", i, it.Name)
		case len(it.Offerings) == 0:
			return fmt.Errorf("[%d].offerings of %q is empty; it must hold at least one offering", i, it.Name)
		case it.Capacity.Cpu().IsZero() || it.Capacity.Memory().IsZero():
			return fmt.Errorf("[%d].resources of %q must hold cpu and memory", i, it.Name)
		}
		names[it.Name] = true
	}
	return nil
}

// newInstanceType shapes a machine as Karpenter's kwok provider would: the same labels, the same
// overhead.
func newInstanceType(m *catalogue.InstanceType) *cloudprovider.InstanceType {
	offerings := newOfferings(m)
	return &cloudprovider.InstanceType{
		Name: m.Name,
		Requirements: scheduling.NewRequirements(
			in(corev1.LabelInstanceTypeStable, m.Name),
			in(corev1.LabelArchStable, m.Architecture),
			in(corev1.LabelOSStable, string(corev1.Linux)),
			in(corev1.LabelTopologyZone, m.Zones...),
			in(karpv1.CapacityTypeLabelKey, capacityTypes(offerings)...),
			in(kwokapi.InstanceFamilyLabelKey, m.Family),
			in(kwokapi.InstanceSizeLabelKey, strconv.Itoa(m.CPU)),
			in(kwokapi.InstanceCPULabelKey, strconv.Itoa(m.CPU)),
			in(kwokapi.InstanceMemoryLabelKey, strconv.Itoa(m.MemoryGiB)+"Gi"),
		),
		Offerings: offerings,
		Capacity:  capacity(m),
		Overhead: &cloudprovider.InstanceTypeOverhead{
			KubeReserved: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("100m"),
				corev1.ResourceMemory: resource.MustParse("10Mi"),
			},
		},
	}
}

func in(key string, values ...string) *scheduling.Requirement {
	return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
}

func capacity(m *catalogue.InstanceType) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(m.CPU), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(m.MemoryGiB)<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(m.Pods), resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(m.EphemeralGiB)<<30, resource.BinarySI),
	}
	for _, devices := range []*catalogue.Devices{m.GPUs, m.NPUs} {
		if devices != nil {
			list[corev1.ResourceName(devices.Resource)] = *resource.NewQuantity(int64(devices.Count), resource.DecimalSI)
		}
	}
	if m.GPUs != nil {
		list[v1alpha1.ResourceGPUMilli] = *resource.NewQuantity(1000*int64(m.GPUs.Count), resource.DecimalSI)
	}
	return list
}

// newOfferings is one offering for each zone and capacity type that the machine has a price for.
func newOfferings(m *catalogue.InstanceType) cloudprovider.Offerings {
	var offerings cloudprovider.Offerings
	for _, zone := range m.Zones {
		offerings = append(offerings, newOffering(karpv1.CapacityTypeOnDemand, zone, m.Price.OnDemand))
		if m.Price.Spot > 0 {
			offerings = append(offerings, newOffering(karpv1.CapacityTypeSpot, zone, m.Price.Spot))
		}
	}
	if m.Reserved != nil {
		reserved := newOffering(karpv1.CapacityTypeReserved, m.Reserved.Zone, m.Reserved.Price)
		reserved.Requirements[v1alpha1.LabelReservationID] = in(v1alpha1.LabelReservationID, m.ReservationID())
		reserved.ReservationCapacity = m.Reserved.Count
		offerings = append(offerings, reserved)
	}
	return offerings
}

func newOffering(capacityType, zone string, price float64) *cloudprovider.Offering {
	return &cloudprovider.Offering{
		Requirements: scheduling.NewRequirements(
			in(karpv1.CapacityTypeLabelKey, capacityType),
			in(corev1.LabelTopologyZone, zone),
			scheduling.NewRequirement(v1alpha1.LabelReservationID, corev1.NodeSelectorOpDoesNotExist),
		),
		Price:     price,
		Available: true,
	}
}

// capacityTypes lists the capacity types of offerings, each once, in their order.
func capacityTypes(offerings cloudprovider.Offerings) []string {
	var types []string
	seen := map[string]bool{}
	for _, o := range offerings {
		if t := o.CapacityType(); !seen[t] {
			seen[t] = true
			types = append(types, t)
		}
	}
	return types
}
