package optimizer

import (
	"github.com/mainspring-rt/mainspring/pkg/allocation"
	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/podselection"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

// sums are what the pods of a selection cost and draw together, and their share of what is idle on their nodes.
type sums struct {
	own, idle  allocation.Share
	pods       int32
	nodes      int32
	spot       int32    // of the nodes
	unpriced   []string // nodes whose price is not known
	unitPriced []string // nodes whose price is that of the policy's units
	defaulted  []string // nodes whose watts come from the default model
}

func (s sums) cost() float64  { return s.own.Cost + s.idle.Cost }
func (s sums) watts() float64 { return s.own.Watts + s.idle.Watts }

// sumOf adds up what the selected pods cost and draw. A selection of everything has all that is idle, that of empty nodes, too.
func sumOf(fleet []counted, s podselection.Selection, units *kcloudv1alpha1.ResourceCostPolicy) sums {
	out := sums{}
	for _, n := range fleet {
		out.add(n, s, units)
	}
	return out
}

func (t *sums) add(n counted, s podselection.Selection, units *kcloudv1alpha1.ResourceCostPolicy) {
	own, pods, used := allocation.Share{}, int32(0), 0.0
	for i, p := range n.pods {
		used += n.shares[i].Part
		if s.Has(p) {
			own, pods = own.Plus(n.shares[i]), pods+1
		}
	}
	if pods == 0 && !s.Everything {
		return
	}
	idle := n.idle
	if !s.Everything {
		idle = allocation.Share{}
		if used > 0 {
			idle = n.idle.Times(own.Part / used)
		}
	}
	if !n.priced {
		if price := unitPrice(units, n); price > 0 {
			own.Cost, idle.Cost = own.Part*price, idle.Part*price
			t.unitPriced = append(t.unitPriced, n.name)
		} else {
			t.unpriced = append(t.unpriced, n.name)
		}
	}
	if !n.labelled {
		t.defaulted = append(t.defaulted, n.name)
	}
	if n.spot {
		t.spot++
	}
	t.own, t.idle = t.own.Plus(own), t.idle.Plus(idle)
	t.pods, t.nodes = t.pods+pods, t.nodes+1
}

// unitPrice is what a node costs by a policy's prices of its parts, in USD per hour.
func unitPrice(units *kcloudv1alpha1.ResourceCostPolicy, n counted) float64 {
	if units == nil {
		return 0
	}
	return units.CPUCostPerCorePerHour*n.capacity.Cpu().AsApproximateFloat64() +
		units.MemoryCostPerGiPerHour*n.capacity.Memory().AsApproximateFloat64()/(1<<30) +
		units.GPUCostPerHour*powermodel.Devices(n.capacity, powermodel.GPU) +
		units.NPUCostPerHour*powermodel.Devices(n.capacity, powermodel.NPU)
}
