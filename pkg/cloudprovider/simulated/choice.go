package simulated

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// choice is an offering that a NodeClaim could be launched into.
type choice struct {
	instanceType *cloudprovider.InstanceType
	offering     *cloudprovider.Offering
}

// String is the choice as errors and Events show it.
func (c choice) String() string {
	return fmt.Sprintf("%s %s in %s", c.offering.CapacityType(), c.instanceType.Name, c.offering.Zone())
}

func (c choice) target() target {
	return target{instanceType: c.instanceType.Name, zone: c.offering.Zone(), capacityType: c.offering.CapacityType()}
}

// choices lists the available offerings that meet a NodeClaim's requirements and hold its requests,
// best first: by price, then by instance type, then in an order of zones that is the NodeClaim's
// own.
func choices(claim *karpv1.NodeClaim, types []*cloudprovider.InstanceType) []choice {
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	var found []choice
	for _, it := range types {
		if !wanted.IsCompatible(it.Requirements, scheduling.AllowUndefinedWellKnownLabels) ||
			!resources.Fits(claim.Spec.Resources.Requests, it.Allocatable()) {
			continue
		}
		for _, of := range it.Offerings.Available().Compatible(wanted) {
			found = append(found, choice{it, of})
		}
	}
	slices.SortFunc(found, func(a, b choice) int {
		return cmp.Or(
			cmp.Compare(a.offering.Price, b.offering.Price),
			cmp.Compare(a.instanceType.Name, b.instanceType.Name),
			cmp.Compare(draw(claim.UID, a.offering.Zone()), draw(claim.UID, b.offering.Zone())),
			cmp.Compare(a.offering.CapacityType(), b.offering.CapacityType()),
		)
	})
	return found
}

// draw is a number that depends on a NodeClaim and a zone only.
func draw(uid types.UID, zone string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%s", uid, zone) // a hash never fails to write
	return h.Sum64()
}

// recorded is the choice that the labels of a NodeClaim tell of, whether available or not.
func recorded(claim *karpv1.NodeClaim, types []*cloudprovider.InstanceType) (choice, bool) {
	t := targetOf(claim)
	for _, it := range types {
		if it.Name != claim.Labels[corev1.LabelInstanceTypeStable] {
			continue
		}
		for _, of := range it.Offerings {
			if c := (choice{it, of}); c.target() == (target{instanceType: t.instanceType, zone: t.zone, capacityType: t.capacityType}) {
				return c, true
			}
		}
	}
	return choice{}, false
}
