package promises

import (
	"maps"
	"slices"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/test/history"
)

// claims checks that what is allocated of each core is there. Devices of a node that is gone hold
// nothing that could be promised twice.
func (c *checker) claims(s history.State) {
	offered := map[string]int64{}
	for _, slice := range s.Slices {
		for _, device := range slice.Spec.Devices {
			capacity := device.Capacity[mckubev1alpha1.CapacityRTBandwidth].Value
			offered[slice.Spec.Pool.Name+"/"+device.Name] = capacity.Value()
		}
	}
	allocated := map[string]int64{}
	for _, claim := range s.Claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			consumed := result.ConsumedCapacity[mckubev1alpha1.CapacityRTBandwidth]
			allocated[result.Pool+"/"+result.Device] += consumed.Value()
		}
	}
	for _, device := range slices.Sorted(maps.Keys(allocated)) {
		if capacity, known := offered[device]; known && allocated[device] > capacity {
			c.tell(s.Revision, "claims on device %s add up to %d ppm of %d", device, allocated[device], capacity)
		}
	}
}
