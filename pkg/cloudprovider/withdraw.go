package cloudprovider

import (
	"slices"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// WithoutOfferings returns a new instance type whose withdrawn offerings are unavailable; the same where none is
// withdrawn. withdrawn has an entry for each offering. What both types share is never written to.
func WithoutOfferings(it *cloudprovider.InstanceType, withdrawn []bool) *cloudprovider.InstanceType {
	if !slices.Contains(withdrawn, true) {
		return it
	}
	out := &cloudprovider.InstanceType{
		Name: it.Name, Requirements: it.Requirements, Offerings: slices.Clone(it.Offerings), Capacity: it.Capacity,
		VolumeAttachmentLimits: it.VolumeAttachmentLimits, DynamicResources: it.DynamicResources, Overhead: it.Overhead,
	}
	if it.IsCapacityOverlayApplied() {
		out.ApplyCapacityOverlay(nil)
	}
	for i, gone := range withdrawn {
		if gone {
			o := *it.Offerings[i]
			o.Available = false
			out.Offerings[i] = &o
		}
	}
	return out
}
