package optimizer

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	provscheduling "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/nodepool"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/mainspring-rt/mainspring/pkg/allocation"
	kcloudv1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/kcloud/v1alpha1"
	machines "github.com/mainspring-rt/mainspring/pkg/cloudprovider"
	"github.com/mainspring-rt/mainspring/pkg/packing"
	"github.com/mainspring-rt/mainspring/pkg/powermodel"
)

// pool is a NodePool with the instance types that the cloud provider offers it.
type pool struct {
	template *provscheduling.NodeClaimTemplate
	types    []*cloudprovider.InstanceType
}

// market is all machines that NodePools may open. unread are the NodePools of which the provider did not say.
type market struct {
	pools  []pool
	unread []string
}

// readMarket asks the provider for the instance types of each NodePool that is not being deleted.
func readMarket(ctx context.Context, c client.Client, provider cloudprovider.CloudProvider) (market, error) {
	list, err := nodepool.ListManaged(ctx, c, provider)
	if err != nil {
		return market{}, fmt.Errorf("listing NodePools: %w", err)
	}
	m := market{}
	for _, np := range list {
		if !np.DeletionTimestamp.IsZero() || nodepool.IsStatic(np) {
			continue // neither opens a machine for a pod
		}
		types, err := provider.GetInstanceTypes(ctx, np)
		if err != nil {
			m.unread = append(m.unread, np.Name)
			continue
		}
		m.pools = append(m.pools, pool{template: provscheduling.NewNodeClaimTemplate(np), types: types})
	}
	slices.Sort(m.unread)
	return m, nil
}

// offer is one instance type as a workload may have it: at its lowest price of all offerings, and at the lowest price on demand.
type offer struct {
	id       string             // NodePool and instance type
	machine  allocation.Machine // Price is the lowest
	onDemand float64            // USD per hour; +Inf without such an offering
}

// offers returns the instance types on which a pod of this shape fits alone, by what its NodePool and the pod require. reason
// says why there is none.
func (m market) offers(shape *corev1.Pod) (list []offer, reason string) {
	requests, alternatives := requestsOf(shape), alternativesOf(shape)
	tolerated, compatible := false, false
	for _, p := range m.pools {
		if !tolerates(shape, p.template.Spec.Taints) {
			continue
		}
		tolerated = true
		for _, it := range p.types {
			o, matches, fits := p.offer(it, alternatives, requests)
			compatible = compatible || matches
			if fits {
				list = append(list, o)
			}
		}
	}
	switch {
	case len(list) > 0:
		return list, ""
	case len(m.pools) == 0:
		return nil, "there is no NodePool"
	case !tolerated:
		return nil, "the pods tolerate the taints of no NodePool"
	case !compatible:
		return nil, fmt.Sprintf("no NodePool offers a machine with %s", strings.ReplaceAll(alternatives[0].String(), ", ", " and "))
	}
	return nil, fmt.Sprintf("no machine that the NodePools allow has %s", resources.String(requests))
}

// alternativesOf returns what the pod requires of its node: one alternative for each term of its required node affinity, of which one
// is enough. Host names are left out: they say which node, and nothing of what it is.
func alternativesOf(shape *corev1.Pod) []scheduling.Requirements {
	asked := shape.DeepCopy()
	terms := []corev1.NodeSelectorTerm{{}}
	if a := asked.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		if list := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(list) > 0 {
			terms = list
		}
	}
	asked.Spec.Affinity = nil
	out := make([]scheduling.Requirements, len(terms))
	for i, term := range terms {
		out[i] = scheduling.NewStrictPodRequirements(asked)
		out[i].Add(scheduling.NewNodeSelectorRequirements(term.MatchExpressions...).Values()...)
		delete(out[i], corev1.LabelHostname)
	}
	return out
}

// tolerates leaves taints of effect PreferNoSchedule out, as the scheduler does where there is no other node.
func tolerates(shape *corev1.Pod, taints []corev1.Taint) bool {
	hard := slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule })
	return scheduling.Taints(hard).ToleratesPod(shape) == nil
}

// offer is the instance type at its lowest price of all alternatives. matches: it meets one of them; fits: it holds the pod, too.
func (p pool) offer(it *cloudprovider.InstanceType, alternatives []scheduling.Requirements, requests corev1.ResourceList) (best offer, matches, fits bool) {
	for _, a := range alternatives {
		if p.template.Requirements.Compatible(a, scheduling.AllowUndefinedWellKnownLabels) != nil {
			continue
		}
		wanted := scheduling.NewRequirements(p.template.Requirements.Values()...)
		wanted.Add(a.Values()...)
		if it.Requirements.Intersects(wanted) != nil {
			continue
		}
		matches = true
		o, ok := offerOf(it, wanted, requests)
		switch {
		case !ok:
		case !fits:
			best, fits = o, true
		default:
			best.machine.Price, best.onDemand = min(best.machine.Price, o.machine.Price), min(best.onDemand, o.onDemand)
		}
	}
	best.id = p.template.NodePoolName + "/" + it.Name
	return best, matches, fits
}

func offerOf(it *cloudprovider.InstanceType, wanted scheduling.Requirements, requests corev1.ResourceList) (offer, bool) {
	offerings := it.Offerings.Compatible(wanted)
	if len(offerings) == 0 || !resources.Fits(requests, it.Allocatable()) {
		return offer{}, false
	}
	o := offer{onDemand: math.Inf(1), machine: allocation.Machine{Price: math.Inf(1), Power: machines.PowerOf(it), Allocatable: it.Allocatable()}}
	for _, offering := range offerings {
		if !machines.UsablePrice(offering.Price) {
			continue
		}
		o.machine.Price = min(o.machine.Price, offering.Price)
		if offering.CapacityType() == karpenterv1.CapacityTypeOnDemand {
			o.onDemand = min(o.onDemand, offering.Price)
		}
	}
	return o, !math.IsInf(o.machine.Price, 1)
}

// shapesOf are pods as the WorkloadOptimizer describes one, for when none is there: where devices are wanted, one
// for each resource that counts them on machines of NodePools.
func (m market) shapesOf(wo *kcloudv1alpha1.WorkloadOptimizer) []*corev1.Pod {
	base := corev1.ResourceList{corev1.ResourceCPU: wo.Spec.Resources.CPU, corev1.ResourceMemory: wo.Spec.Resources.Memory}
	lists := []corev1.ResourceList{base}
	if n := wo.Spec.Resources.GPU; n > 0 {
		lists = m.withDevices(lists, powermodel.GPU, n)
	}
	if n := wo.Spec.Resources.NPU; n > 0 {
		lists = m.withDevices(lists, powermodel.NPU, n)
	}
	shapes := make([]*corev1.Pod, len(lists))
	for i, list := range lists {
		shapes[i] = &corev1.Pod{Spec: corev1.PodSpec{
			Containers:  []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list}}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // the spec does not say what the pods will tolerate
		}}
		if policy := wo.Spec.PlacementPolicy; policy != nil {
			shapes[i].Spec.NodeSelector = policy.NodeSelector
		}
	}
	return shapes
}

// withDevices adds n devices to each list, once for every resource that counts whole devices of the kind.
func (m market) withDevices(lists []corev1.ResourceList, kind powermodel.DeviceKind, n int32) []corev1.ResourceList {
	var out []corev1.ResourceList
	for _, name := range m.deviceResources(kind) {
		for _, list := range lists {
			added := list.DeepCopy()
			added[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
			out = append(out, added)
		}
	}
	return out
}

func (m market) deviceResources(kind powermodel.DeviceKind) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, p := range m.pools {
		for _, it := range p.types {
			for name := range it.Capacity {
				if powermodel.KindOf(name) == kind && powermodel.CountsWhole(name) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	if len(names) == 0 {
		names = []corev1.ResourceName{corev1.ResourceName("vendor/" + string(kind))} // which no machine has
	}
	slices.Sort(names)
	return names
}

// priceOf is what a node costs in USD per hour: the price of the offering that its labels name, else what the provider has
// written on it; 0 where neither says.
func (m market) priceOf(labels, annotations map[string]string) float64 {
	for _, p := range m.pools {
		if p.template.NodePoolName != labels[karpenterv1.NodePoolLabelKey] {
			continue
		}
		if price, ok := machines.PriceAt(p.types, labels); ok {
			return price
		}
	}
	price, _ := machines.PriceOfMachine(nil, labels, annotations)
	return price
}

// resourcesOf are what bounds count, in the order of their numbers.
var resourcesOf = []func(corev1.ResourceList) float64{
	func(l corev1.ResourceList) float64 { return l.Cpu().AsApproximateFloat64() },
	func(l corev1.ResourceList) float64 { return l.Memory().AsApproximateFloat64() / (1 << 30) },
	func(l corev1.ResourceList) float64 { return powermodel.Devices(l, powermodel.GPU) },
	func(l corev1.ResourceList) float64 { return powermodel.Devices(l, powermodel.NPU) },
}

func vector(list corev1.ResourceList) []float64 {
	out := make([]float64, len(resourcesOf))
	for i, of := range resourcesOf {
		out[i] = of(list)
	}
	return out
}

// lowestCost bounds what pods with these requests together cost at least on these offers, in USD per hour.
func lowestCost(offers []offer, sum corev1.ResourceList) (float64, error) {
	return packing.Bound(typesOf(offers, func(o offer) float64 { return o.machine.Price }), vector(sum))
}

// lowestWatts bounds what they draw at least: the idle watts of the machines that hold them, and for each core and device the least that
// any machine adds to load it.
func lowestWatts(offers []offer, sum corev1.ResourceList) (float64, error) {
	idle := 0.0 // where some machine rests for nothing
	if !slices.ContainsFunc(offers, func(o offer) bool { return o.machine.Power.Whole().Idle <= 0 }) {
		var err error
		if idle, err = packing.Bound(typesOf(offers, func(o offer) float64 { return o.machine.Power.Whole().Idle }), vector(sum)); err != nil {
			return 0, err
		}
	}
	perCore, perDevice := math.Inf(1), math.Inf(1)
	for _, o := range offers {
		p, a := o.machine.Power, o.machine.Allocatable
		if cpus := a.Cpu().AsApproximateFloat64(); cpus > 0 {
			perCore = min(perCore, (p.Host.Max-p.Host.Idle)/cpus)
		}
		if n := devices(a); n > 0 {
			perDevice = min(perDevice, (p.Devices.Max-p.Devices.Idle)/n)
		}
	}
	working := 0.0
	if cpus := sum.Cpu().AsApproximateFloat64(); cpus > 0 {
		working += perCore * cpus
	}
	if n := devices(sum); n > 0 {
		working += perDevice * n
	}
	return idle + working, nil
}

func devices(list corev1.ResourceList) float64 {
	return powermodel.Devices(list, powermodel.GPU) + powermodel.Devices(list, powermodel.NPU)
}

func typesOf(offers []offer, cost func(offer) float64) []packing.Type {
	types := make([]packing.Type, len(offers))
	for i, o := range offers {
		types[i] = packing.Type{Cost: cost(o), Capacity: vector(o.machine.Allocatable)}
	}
	return types
}

// alone is what a pod costs and draws on a machine of its own: the cheapest on demand, or the cheapest of all where none is
// offered on demand.
func alone(offers []offer, requests corev1.ResourceList) (cost, watts float64) {
	price := func(o offer) float64 { return o.onDemand }
	if !slices.ContainsFunc(offers, func(o offer) bool { return !math.IsInf(o.onDemand, 1) }) {
		price = func(o offer) float64 { return o.machine.Price }
	}
	best := slices.MinFunc(offers, func(a, b offer) int {
		switch x, y := price(a), price(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	pods, idle := best.machine.Shares([]corev1.ResourceList{requests})
	return price(best), pods[0].Watts + idle.Watts
}

// leastShare is the least that one pod can cost and draw on any of the offers, as status counts it: its share of a machine that
// others fill. Where the power of devices is not known apart, others may drive it all, and the pod's part of the idle watts is left.
func leastShare(offers []offer, requests corev1.ResourceList) (cost, watts float64) {
	cost, watts = math.Inf(1), math.Inf(1)
	for _, o := range offers {
		pods, _ := o.machine.Shares([]corev1.ResourceList{requests})
		drawn := pods[0].Watts
		if o.machine.Power.Devices.Max == 0 && devices(o.machine.Allocatable) > 0 {
			drawn = o.machine.Power.Whole().Idle * pods[0].Part
		}
		cost, watts = min(cost, pods[0].Cost), min(watts, drawn)
	}
	return cost, watts
}

// union is every offer once.
func union(shapes []*shape) (all []offer) {
	known := map[string]int{}
	for _, s := range shapes {
		for _, o := range s.offers {
			at, seen := known[o.id]
			if !seen {
				known[o.id] = len(all)
				all = append(all, o)
				continue
			}
			all[at].machine.Price = min(all[at].machine.Price, o.machine.Price)
		}
	}
	return all
}
