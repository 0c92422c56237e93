package simulated

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/cloudprovider/catalogue"
)

// offer is what the cloud has on its list, and the changed instance types that it has handed out.
// The lists never change; what is scarce at the moment is laid over them.
type offer struct {
	lists map[audience]list
	// naming are the values by which a NodePool names one of the types that are offered by name only.
	naming map[labelValue]bool

	mu      sync.Mutex
	changed map[changedKey]*cloudprovider.InstanceType
}

// audience is what a NodePool has to ask for by name to be offered it.
type audience struct{ edge, reserved, named bool }

// list is the instance types for an audience.
type list struct {
	types []*cloudprovider.InstanceType
	// reserved: there are reserved offerings among them.
	reserved bool
}

// changedKey is an instance type and the state of its offerings that differs from the list.
type changedKey struct {
	original *cloudprovider.InstanceType
	state    string
}

// maxChanged bounds the memory for changed instance types; when it is reached they are made anew.
const maxChanged = 10_000

// newOffer lists types for each audience; named are further ones, without reservations.
func newOffer(types, named []*cloudprovider.InstanceType, c *catalogue.Catalogue) *offer {
	o := &offer{lists: map[audience]list{}, naming: ownValues(named, types), changed: map[changedKey]*cloudprovider.InstanceType{}}
	for _, edge := range []bool{false, true} {
		for _, reserved := range []bool{false, true} {
			var offered []*cloudprovider.InstanceType
			for _, it := range types {
				if machine, known := c.Lookup(it.Name); known && machine.Class == catalogue.Edge && !edge {
					continue
				}
				if !reserved {
					it = withoutReserved(it)
				}
				offered = append(offered, it)
			}
			o.lists[audience{edge: edge, reserved: reserved}] = list{types: offered, reserved: hasReserved(offered)}
			offered = slices.Concat(offered, named)
			o.lists[audience{edge: edge, reserved: reserved, named: true}] = list{types: offered, reserved: hasReserved(offered)}
		}
	}
	return o
}

// to returns the list for a NodePool; for none, as for a NodeClaim on its own, everything.
func (o *offer) to(nodePool *karpv1.NodePool) list {
	return o.lists[o.audienceOf(nodePool)]
}

func (o *offer) audienceOf(nodePool *karpv1.NodePool) audience {
	if nodePool == nil {
		return audience{edge: true, reserved: true, named: true}
	}
	labels := nodePool.Spec.Template.Labels
	_, edge := labels[v1alpha1.LabelHardwareClass]
	a := audience{edge: edge, named: names(nodePool, o.naming), reserved: labels[karpv1.CapacityTypeLabelKey] == karpv1.CapacityTypeReserved}
	for _, r := range nodePool.Spec.Template.Spec.Requirements {
		switch r.Key {
		case v1alpha1.LabelHardwareClass:
			a.edge = true
		case karpv1.CapacityTypeLabelKey:
			// Several requirements on one key hold together: another one takes nothing back here.
			a.reserved = a.reserved || r.Operator == corev1.NodeSelectorOpIn && slices.Contains(r.Values, karpv1.CapacityTypeReserved)
		}
	}
	return a
}

// adjusted lays shortages and the use of reservations over types. An instance type that neither
// touches is returned as it is; one in the same state as before is the same pointer as before.
func (o *offer) adjusted(types []*cloudprovider.InstanceType, shortages []v1alpha1.SimulatedFault, inUse map[string]int) []*cloudprovider.InstanceType {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.changed) > maxChanged {
		clear(o.changed)
	}
	result := make([]*cloudprovider.InstanceType, len(types))
	for i, it := range types {
		offerings := adjustedOfferings(it, shortages, inUse)
		if offerings == nil {
			result[i] = it
			continue
		}
		key := changedKey{original: it, state: stateOf(offerings)}
		if o.changed[key] == nil {
			o.changed[key] = withOfferings(it, offerings)
		}
		result[i] = o.changed[key]
	}
	return result
}

// adjustedOfferings is nil where nothing differs.
func adjustedOfferings(it *cloudprovider.InstanceType, shortages []v1alpha1.SimulatedFault, inUse map[string]int) cloudprovider.Offerings {
	var adjusted cloudprovider.Offerings
	for i, of := range it.Offerings {
		used := 0
		if of.CapacityType() == karpv1.CapacityTypeReserved {
			used = inUse[of.ReservationID()]
		}
		short := struckBy(shortages, target{instanceType: it.Name, zone: of.Zone(), capacityType: of.CapacityType()})
		if used == 0 && !short {
			continue
		}
		if adjusted == nil {
			adjusted = slices.Clone(it.Offerings)
		}
		adjusted[i] = &cloudprovider.Offering{
			Requirements:        of.Requirements,
			Price:               of.Price,
			Available:           of.Available && !short,
			ReservationCapacity: max(0, of.ReservationCapacity-used),
			CapacityOverride:    of.CapacityOverride,
			OverheadOverride:    of.OverheadOverride,
		}
	}
	return adjusted
}

// stateOf spells out what adjustedOfferings may change.
func stateOf(offerings cloudprovider.Offerings) string {
	var b strings.Builder
	for _, of := range offerings {
		b.WriteString(strconv.FormatBool(of.Available))
		b.WriteString(strconv.Itoa(of.ReservationCapacity))
	}
	return b.String()
}

// withOfferings is a new instance type that shares everything else with it.
func withOfferings(it *cloudprovider.InstanceType, offerings cloudprovider.Offerings) *cloudprovider.InstanceType {
	return &cloudprovider.InstanceType{
		Name:                   it.Name,
		Requirements:           it.Requirements,
		Offerings:              offerings,
		Capacity:               it.Capacity,
		VolumeAttachmentLimits: it.VolumeAttachmentLimits,
		DynamicResources:       it.DynamicResources,
		Overhead:               it.Overhead,
	}
}

func withoutReserved(it *cloudprovider.InstanceType) *cloudprovider.InstanceType {
	if !hasReserved([]*cloudprovider.InstanceType{it}) {
		return it
	}
	offerings := slices.DeleteFunc(slices.Clone(it.Offerings), func(of *cloudprovider.Offering) bool {
		return of.CapacityType() == karpv1.CapacityTypeReserved
	})
	stripped := withOfferings(it, offerings)
	stripped.Requirements = maps.Clone(it.Requirements)
	stripped.Requirements[karpv1.CapacityTypeLabelKey] = in(karpv1.CapacityTypeLabelKey, capacityTypes(offerings)...)
	return stripped
}

func hasReserved(types []*cloudprovider.InstanceType) bool {
	return slices.ContainsFunc(types, func(it *cloudprovider.InstanceType) bool {
		return slices.ContainsFunc(it.Offerings, func(of *cloudprovider.Offering) bool {
			return of.CapacityType() == karpv1.CapacityTypeReserved
		})
	})
}
