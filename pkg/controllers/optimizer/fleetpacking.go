package optimizer

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/mainspring-rt/mainspring/pkg/packing"
)

// fleetPacking is the pods on machines that Karpenter opens and closes, and the machines that could run them: the input of packing.Solve.
type fleetPacking struct {
	cost     float64 // of the machines that are there, USD per hour
	pods     int32
	types    []packing.Type
	groups   []packing.Group
	unpriced []string // machines whose price is not known
	kinds    int      // of pods; types and groups are empty where there are more than packing.MaxGroups
}

// equals reports whether the cheapest packing is the same.
func (f fleetPacking) equals(o fleetPacking) bool {
	return slices.EqualFunc(f.types, o.types, func(a, b packing.Type) bool { return a.Cost == b.Cost && slices.Equal(a.Capacity, b.Capacity) }) &&
		slices.EqualFunc(f.groups, o.groups, func(a, b packing.Group) bool {
			return a.Count == b.Count && slices.Equal(a.Requests, b.Requests) && slices.Equal(a.Types, b.Types)
		})
}

// podGroup is pods that ask for the same.
type podGroup struct {
	*shape
	amounts      map[corev1.ResourceName]float64
	alternatives []scheduling.Requirements
	prices       map[string]float64 // the lowest, by type that the market offers
}

// runningKind is machines that are there and alike, so that the same groups may run on them.
type runningKind struct {
	cost     float64 // of the cheapest
	capacity map[corev1.ResourceName]float64
	labels   scheduling.Requirements
	taints   []corev1.Taint // of the NodePool
	groups   map[string]bool
}

// collection is what packingOf has read of a fleet.
type collection struct {
	market  market
	groups  map[string]*podGroup
	running map[string]*runningKind
}

// packingOf groups the pods of the machines of NodePools by what they ask for. They may have any machine that a
// NodePool offers them, at the lowest price at which it does, and any that is there and that they fit. Pods of
// DaemonSets and of the node itself are left out: they come with a machine. So are nodes of static NodePools and of
// none.
func packingOf(fleet []counted, m market, shapes *shapeCache) fleetPacking {
	out := fleetPacking{}
	c := collection{market: m, groups: map[string]*podGroup{}, running: map[string]*runningKind{}}
	for _, n := range fleet {
		p, managed := m.poolOf(n.nodePool)
		if !managed {
			continue
		}
		if !n.priced {
			out.unpriced = append(out.unpriced, n.name)
		}
		out.cost += n.Price
		out.pods += c.add(n, p, shapes)
	}
	shapes.prune()
	if out.kinds = len(c.groups); out.kinds <= packing.MaxGroups {
		c.fill(&out)
	}
	return out
}

// poolOf is the NodePool of this name, if Karpenter opens and closes machines of it as pods need them.
func (m market) poolOf(name string) (pool, bool) {
	i := slices.IndexFunc(m.pools, func(p pool) bool { return p.template.NodePoolName == name })
	if i < 0 {
		return pool{}, false
	}
	return m.pools[i], true
}

// comesWithMachine reports whether each machine has a pod of this kind.
func comesWithMachine(p *corev1.Pod) bool {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind == "DaemonSet"
}

// add adds a machine and its pods. It returns how many were counted.
func (c *collection) add(n counted, p pool, shapes *shapeCache) (pods int32) {
	k := c.kindOf(n, p)
	sum := map[corev1.ResourceName]float64{}
	for _, pod := range n.pods {
		if comesWithMachine(pod) {
			continue
		}
		s := shapes.of(pod)
		g := c.groups[s.key]
		if g == nil {
			g = &podGroup{shape: &shape{Pod: s.Pod, key: s.key}, amounts: amountsOf(requestsOf(s.Pod))}
			g.amounts[corev1.ResourcePods] = 1
			c.groups[s.key] = g
		}
		g.count++
		pods++
		k.groups[s.key] = true
		for name, x := range g.amounts {
			sum[name] += x
		}
	}
	k.grow(sum) // what runs on a machine fits, whatever the machine says that it has
	return pods
}

// kindOf is the kind of a machine. Machines of a kind count as one that is as cheap as the cheapest and as large as the
// largest of them: a bound on it is one on them.
func (c *collection) kindOf(n counted, p pool) *runningKind {
	labels := maps.Clone(n.labels)
	delete(labels, corev1.LabelHostname)
	key := fmt.Sprint(labels) // in the order of the keys
	k := c.running[key]
	if k == nil {
		k = &runningKind{
			cost: math.Inf(1), capacity: map[corev1.ResourceName]float64{}, labels: scheduling.NewLabelRequirements(labels),
			taints: p.template.Spec.Taints, groups: map[string]bool{},
		}
		c.running[key] = k
	}
	if n.priced {
		k.cost = min(k.cost, n.Price)
	}
	k.grow(capacityOf(n.Allocatable))
	return k
}

func (k *runningKind) grow(amounts map[corev1.ResourceName]float64) {
	for name, x := range amounts {
		k.capacity[name] = max(k.capacity[name], x)
	}
}

// takes reports whether pods of a group may run on machines of this kind: some do, or nothing that they require forbids it.
func (k *runningKind) takes(g *podGroup) bool {
	return k.groups[g.key] || tolerates(g.Pod, k.taints) && slices.ContainsFunc(g.alternatives, func(a scheduling.Requirements) bool { return k.labels.Compatible(a) == nil })
}

// amountsOf are resources by name.
func amountsOf(list corev1.ResourceList) map[corev1.ResourceName]float64 {
	out := make(map[corev1.ResourceName]float64, len(list)+1)
	for name, q := range list {
		out[name] = q.AsApproximateFloat64()
	}
	return out
}

// capacityOf is that of a machine. One that does not bound the number of pods has room for any.
func capacityOf(list corev1.ResourceList) map[corev1.ResourceName]float64 {
	out := amountsOf(list)
	if _, bounded := list[corev1.ResourcePods]; !bounded {
		out[corev1.ResourcePods] = math.MaxInt32
	}
	return out
}

// fill numbers groups, resources and types in the order of their names, so that the same fleet gives the same problem.
func (c *collection) fill(f *fleetPacking) {
	groups := slices.SortedFunc(maps.Values(c.groups), func(a, b *podGroup) int { return cmp.Compare(a.key, b.key) })
	names := map[corev1.ResourceName]bool{}
	offered := map[string]offer{}
	for _, g := range groups {
		for name := range g.amounts {
			names[name] = true
		}
		g.alternatives, g.prices = alternativesOf(g.Pod), map[string]float64{}
		offers, _ := c.market.offers(g.Pod)
		for _, o := range offers {
			offered[o.id] = o
			g.prices[o.id] = o.machine.Price
		}
	}
	resources := slices.Sorted(maps.Keys(names))
	for _, g := range groups {
		f.groups = append(f.groups, packing.Group{Requests: inOrder(g.amounts, resources), Count: g.count, Types: []int{}}) // nil would be any
	}
	add := func(cost float64, capacity []float64, takes func(*podGroup) bool) {
		number := len(f.types)
		f.types = append(f.types, packing.Type{Cost: cost, Capacity: capacity})
		for i, g := range groups {
			if takes(g) {
				f.groups[i].Types = append(f.groups[i].Types, number)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(offered)) {
		capacity := inOrder(capacityOf(offered[id].machine.Allocatable), resources)
		// A type that is offered at several prices is one for each of them: a group has those at its own lowest price and above.
		for _, price := range pricesOf(groups, id) {
			add(price, capacity, func(g *podGroup) bool { lowest, ok := g.prices[id]; return ok && lowest <= price })
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.running)) {
		if k := c.running[key]; !math.IsInf(k.cost, 0) {
			add(k.cost, inOrder(k.capacity, resources), k.takes)
		}
	}
}

// pricesOf are the lowest prices that the groups have of a type, each once, in order.
func pricesOf(groups []*podGroup, id string) []float64 {
	var prices []float64
	for _, g := range groups {
		if price, ok := g.prices[id]; ok {
			prices = append(prices, price)
		}
	}
	slices.Sort(prices)
	return slices.Compact(prices)
}

func inOrder(amounts map[corev1.ResourceName]float64, names []corev1.ResourceName) []float64 {
	out := make([]float64, len(names))
	for i, name := range names {
		out[i] = amounts[name]
	}
	return out
}

// shapeCache keeps what pods ask for, for as long as they are the same object in the API. One goroutine uses it.
type shapeCache struct {
	shapes map[types.UID]cachedShape
	round  int
}

type cachedShape struct {
	*shape
	version string
	round   int // in which it was last asked for
}

func (c *shapeCache) of(p *corev1.Pod) *shape {
	if c.shapes == nil {
		c.shapes = map[types.UID]cachedShape{}
	}
	s, ok := c.shapes[p.UID]
	if !ok || s.version != p.ResourceVersion {
		s = cachedShape{shape: newShape(p), version: p.ResourceVersion}
	}
	s.round = c.round
	c.shapes[p.UID] = s
	return s.shape
}

// prune drops the pods that were not asked for since the last time.
func (c *shapeCache) prune() {
	maps.DeleteFunc(c.shapes, func(_ types.UID, s cachedShape) bool { return s.round != c.round })
	c.round++
}
