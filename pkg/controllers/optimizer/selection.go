package optimizer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mainspring-rt/mainspring/pkg/allocation"
	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

// selection is which pods a policy is about.
type selection struct {
	everything bool
	pods       labels.Selector
	namespaces sets.Set[string] // nil: all
}

// parseSelectors reads the selectors of a policy. The error names the field.
func parseSelectors(s kcloudv1alpha1.Selection) (namespaces, pods labels.Selector, err error) {
	namespaces, pods = labels.Everything(), labels.Everything()
	if s.NamespaceSelector != nil {
		if namespaces, err = metav1.LabelSelectorAsSelector(s.NamespaceSelector); err != nil {
			return nil, nil, fmt.Errorf("spec.namespaceSelector: %w", err)
		}
	}
	if s.WorkloadSelector != nil {
		if pods, err = metav1.LabelSelectorAsSelector(s.WorkloadSelector); err != nil {
			return nil, nil, fmt.Errorf("spec.workloadSelector: %w", err)
		}
	}
	return namespaces, pods, nil
}

// readSelection reads which namespaces a policy selects.
func readSelection(ctx context.Context, c client.Reader, s kcloudv1alpha1.Selection) (selection, error) {
	namespaces, pods, err := parseSelectors(s)
	if err != nil {
		return selection{}, err
	}
	out := selection{everything: s.Everything(), pods: pods}
	if s.NamespaceSelector == nil {
		return out, nil
	}
	list := &corev1.NamespaceList{}
	if err := c.List(ctx, list, client.MatchingLabelsSelector{Selector: namespaces}); err != nil {
		return selection{}, fmt.Errorf("listing namespaces: %w", err)
	}
	out.namespaces = sets.New[string]()
	for i := range list.Items {
		out.namespaces.Insert(list.Items[i].Name)
	}
	return out, nil
}

func (s selection) has(p *corev1.Pod) bool {
	return (s.namespaces == nil || s.namespaces.Has(p.Namespace)) && s.pods.Matches(labels.Set(p.Labels))
}

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

// sum adds up what the selected pods cost and draw. A selection of everything has all that is idle, that of empty nodes, too.
func (s selection) sum(fleet []counted, units *kcloudv1alpha1.ResourceCostPolicy) sums {
	out := sums{}
	for _, n := range fleet {
		out.add(n, s, units)
	}
	return out
}

func (t *sums) add(n counted, s selection, units *kcloudv1alpha1.ResourceCostPolicy) {
	own, pods, used := allocation.Share{}, int32(0), 0.0
	for i, p := range n.pods {
		used += n.shares[i].Part
		if s.has(p) {
			own, pods = own.Plus(n.shares[i]), pods+1
		}
	}
	if pods == 0 && !s.everything {
		return
	}
	idle := n.idle
	if !s.everything {
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
