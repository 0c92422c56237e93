package provisioning

import (
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/rt"
	"github.com/mainspring-rt/mainspring/pkg/rtdra"
)

// coresOf are the real-time cores that a node of an instance type will offer; none for one without.
func coresOf(it *cloudprovider.InstanceType) ([]rt.Core, error) {
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

// admits tells whether an empty node with these cores takes all the servers at once, each on a core of its own choice
// by the test that will judge it there. The largest choose first. charged is what every budget is charged at least, in
// microseconds: claims leave out cores that end budgets later than that.
func admits(cores []rt.Core, servers []rt.Server, charged int64) bool {
	loads := make([]rt.Load, 0, len(cores))
	for _, core := range cores {
		if core.Granularity <= charged {
			core.Granularity = charged
			loads = append(loads, rt.Load{Core: core})
		}
	}
	ordered := slices.Clone(servers)
	slices.SortStableFunc(ordered, func(a, b rt.Server) int { return int(b.Charge(charged) - a.Charge(charged)) })
	for _, server := range ordered {
		id, _, ok := rt.BestCore(loads, server)
		if !ok {
			return false
		}
		at := slices.IndexFunc(loads, func(l rt.Load) bool { return l.ID == id })
		loads[at].Servers = append(loads[at].Servers, server)
	}
	return true
}
