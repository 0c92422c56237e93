package limits

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	machines "github.com/mainspring-rt/mainspring/pkg/cloudprovider"
)

// candidate is an instance type that a NodeClaim may become, at its cheapest and at its dearest offering.
type candidate struct {
	*instanceType
	least, most machine
}

// candidates returns the instance types that a NodeClaim may become, of which every offering that it may take is within
// the room. A capacity type leaves it the offerings of that one.
func (p *Provider) candidates(c *karpenterv1.NodeClaim, offered []*instanceType, r room, capacityType string) []candidate {
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(c.Spec.Requirements...)
	if capacityType != "" {
		wanted.Add(scheduling.NewRequirement(karpenterv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, capacityType))
	}
	var out []candidate
	for _, it := range offered {
		if it.Requirements.Intersects(wanted) != nil || !fits(c.Spec.Resources.Requests, it) {
			continue
		}
		if k, ok := newCandidate(it, c.Labels[karpenterv1.NodePoolLabelKey], p.wattsOf(it), wanted, r); ok {
			out = append(out, k)
		}
	}
	return out
}

// fits reports whether some offerings of the type have what is requested.
func fits(requests corev1.ResourceList, it *instanceType) bool {
	return slices.ContainsFunc(it.AllocatableOfferingsList(), func(a cloudprovider.AllocatableOfferings) bool { return resources.Fits(requests, a.Allocatable) })
}

func newCandidate(it *instanceType, nodePool string, watts float64, wanted scheduling.Requirements, r room) (candidate, bool) {
	k, some := candidate{instanceType: it}, false
	for _, o := range it.Offerings {
		if !o.Launchable() || wanted.Compatible(o.Requirements, scheduling.AllowUndefinedWellKnownLabels) != nil {
			continue
		}
		m := machine{nodePool: nodePool, dollars: o.Price, watts: watts, spot: o.CapacityType() == karpenterv1.CapacityTypeSpot, passing: true}
		if m.spot && !r.spot {
			continue // the launch is told not to take it
		}
		if !r.admits(m) {
			return candidate{}, false // the launch might take it
		}
		if !some || m.dollars < k.least.dollars {
			k.least = m
		}
		if !some || m.dollars > k.most.dollars {
			k.most = m
		}
		k.most.spot, some = k.most.spot || m.spot, true
	}
	return k, some
}

// capacityTypes are what a launch is narrowed to, in this order, where no instance type has room at every offering.
var capacityTypes = []string{"", karpenterv1.CapacityTypeReserved, karpenterv1.CapacityTypeOnDemand, karpenterv1.CapacityTypeSpot}

// fit returns the launch of a NodeClaim that has room; nil where none has.
func (p *Provider) fit(c *karpenterv1.NodeClaim, offered []*instanceType, r room) *launch {
	for _, capacityType := range capacityTypes {
		if list := choose(c, p.candidates(c, offered, r, capacityType)); len(list) > 0 {
			return newLaunch(c, list, capacityType, r, offered)
		}
	}
	return nil
}

// widest is how much dearer, or thirstier, than the least of its candidates a launch may become: all that it may become
// is kept for it until it is known.
const widest = 2

// choose returns the candidates that a launch is left with: those near to the least, or all where its minimal numbers
// of values need them; none where not even these are enough.
func choose(c *karpenterv1.NodeClaim, list []candidate) []candidate {
	if len(list) == 0 {
		return nil
	}
	dollars, watts := math.Inf(1), math.Inf(1)
	for _, k := range list {
		if machines.UsablePrice(k.most.dollars) { // one that says nothing is no measure
			dollars = min(dollars, k.most.dollars)
		}
	}
	for _, k := range list {
		if k.most.dollars <= widest*dollars {
			watts = min(watts, k.most.watts)
		}
	}
	few := slices.DeleteFunc(slices.Clone(list), func(k candidate) bool { return k.most.dollars > widest*dollars || k.most.watts > widest*watts })
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(c.Spec.Requirements...)
	for _, some := range [][]candidate{few, list} {
		types := make(cloudprovider.InstanceTypes, len(some))
		for i, k := range some {
			types[i] = k.instanceType
		}
		if _, _, err := types.SatisfiesMinValues(wanted); err == nil {
			return some
		}
	}
	return nil
}

// newLaunch leaves a NodeClaim the instance types of the candidates, the capacity type where one is named, and no spot
// machine where the room has none. It counts as the most that it may become.
func newLaunch(c *karpenterv1.NodeClaim, list []candidate, capacityType string, r room, offered []*instanceType) *launch {
	l := &launch{machine: machine{nodePool: c.Labels[karpenterv1.NodePoolLabelKey], passing: true}, offered: offered}
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = k.Name
		l.dollars, l.watts, l.spot = max(l.dollars, k.most.dollars), max(l.watts, k.most.watts), l.spot || k.most.spot
	}
	l.requirements = append(slices.Clone(c.Spec.Requirements), karpenterv1.NodeSelectorRequirementWithMinValues{
		Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: names,
	})
	if capacityType != "" {
		l.requirements = append(l.requirements, karpenterv1.NodeSelectorRequirementWithMinValues{
			Key: karpenterv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{capacityType},
		})
	} else if !r.spot {
		l.requirements = append(l.requirements, karpenterv1.NodeSelectorRequirementWithMinValues{
			Key: karpenterv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpNotIn, Values: []string{karpenterv1.CapacityTypeSpot},
		})
	}
	return l
}
