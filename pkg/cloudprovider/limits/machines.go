package limits

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
	machines "github.com/mainspring-rt/mainspring/pkg/cloudprovider"
)

// purpose is what machines are added up for. NodeClaims that wait for their launch count for a plan, at the least that
// they may be. For a launch they do not: of several, the first has the room.
type purpose int

const (
	forPlan purpose = iota
	forLaunch
)

// machines returns all machines that run or start. The caller holds launching where it is for a launch.
func (p *Provider) machines(ctx context.Context, r rules, why purpose) ([]machine, error) {
	list := &karpenterv1.NodeClaimList{}
	if err := p.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	catalogues := p.catalogues(ctx, r)
	starting, unclaimed := p.underWay(list, why)
	out := make([]machine, 0, len(list.Items)+len(unclaimed))
	least := map[string]*machine{}
	for i := range list.Items {
		c := &list.Items[i]
		offered := catalogues[c.Labels[karpenterv1.NodePoolLabelKey]]
		m, starts := starting[c.UID]
		switch {
		case launched(c):
			delete(unclaimed, c.Status.ProviderID)
			out = append(out, p.newMachine(c, offered))
		case starts:
			out = append(out, m)
		case why == forPlan:
			if m := p.leastOf(c, offered, least); m != nil {
				out = append(out, *m)
			}
		}
	}
	for _, m := range unclaimed {
		out = append(out, m.machine)
	}
	return out, nil
}

// catalogues are what NodePools are offered. Where the provider does not answer, what it answered last stands: the
// machines are there all the same.
func (p *Provider) catalogues(ctx context.Context, r rules) map[string]catalogue {
	out := map[string]catalogue{}
	for name, np := range r.nodePools {
		offered, err := p.CloudProvider.GetInstanceTypes(ctx, np)
		p.mu.Lock()
		if err == nil {
			p.offered[name] = offered
		}
		out[name] = newCatalogue(p.offered[name])
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.offered, func(name string, _ []*instanceType) bool { return r.nodePools[name] == nil })
	return out
}

// underWay returns what starts, and what no NodeClaim has. Before a launch it forgets what the NodeClaims show to be
// launched or gone: the lock of launches keeps new ones from coming after these NodeClaims were listed.
func (p *Provider) underWay(list *karpenterv1.NodeClaimList, why purpose) (map[types.UID]machine, map[string]unclaimed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why == forLaunch {
		waiting := sets.New[types.UID]()
		for i := range list.Items {
			if c := &list.Items[i]; launched(c) {
				delete(p.unclaimed, c.Status.ProviderID)
			} else {
				waiting.Insert(c.UID)
			}
		}
		for uid, l := range p.starting {
			if !waiting.Has(uid) {
				delete(p.starting, uid)
				p.stale = p.stale || l.providerID == ""
			}
		}
	}
	starting := make(map[types.UID]machine, len(p.starting))
	for uid, l := range p.starting {
		starting[uid] = l.machine
	}
	return starting, maps.Clone(p.unclaimed)
}

func launched(c *karpenterv1.NodeClaim) bool { return c.Status.ProviderID != "" }

// leastOf is the least that a NodeClaim may become; nil where it may become nothing. NodeClaims of one plan have the
// same requirements, and so one answer.
func (p *Provider) leastOf(c *karpenterv1.NodeClaim, offered catalogue, known map[string]*machine) *machine {
	pool := c.Labels[karpenterv1.NodePoolLabelKey]
	key := pool + fmt.Sprint(c.Spec.Requirements, c.Spec.Resources)
	if m, ok := known[key]; ok {
		return m
	}
	known[key] = nil
	for _, k := range p.candidates(c, offered.list, unlimited(), "") {
		if m := known[key]; m == nil || k.least.dollars < m.dollars {
			known[key] = &k.least
		}
	}
	return known[key]
}

// catalogue is what a NodePool is offered.
type catalogue struct {
	list   []*instanceType
	byName map[string]*instanceType
}

func newCatalogue(list []*instanceType) catalogue {
	k := catalogue{list: list, byName: make(map[string]*instanceType, len(list))}
	for _, it := range list {
		k.byName[it.Name] = it
	}
	return k
}

// newMachine is what a NodeClaim or a machine of the cloud runs on. Where neither the provider nor an annotation has a
// price, it counts as 0.
func (p *Provider) newMachine(c *karpenterv1.NodeClaim, offered catalogue) machine {
	capacityType := c.Labels[karpenterv1.CapacityTypeLabelKey]
	m := machine{nodePool: c.Labels[karpenterv1.NodePoolLabelKey], spot: capacityType == karpenterv1.CapacityTypeSpot, passing: !c.DeletionTimestamp.IsZero()}
	it, known := offered.byName[c.Labels[corev1.LabelInstanceTypeStable]], false
	if it != nil && capacityType != karpenterv1.CapacityTypeReserved { // of which one zone may have several
		m.dollars, known = it.OfferingPrice(c.Labels[corev1.LabelTopologyZone], capacityType)
	}
	if !known || !machines.UsablePrice(m.dollars) {
		m.dollars, _ = machines.PriceOfMachine(offered.list, c.Labels, c.Annotations)
	}
	// A template's labels come before the provider's, so that the type decides where all its machines draw the same.
	if it != nil && it.Requirements.Get(mckubev1alpha1.LabelWattsMax).Len() <= 1 {
		m.watts = p.wattsOf(it)
	} else {
		m.watts = machines.PowerOfMachine(c.Labels, c.Status.Capacity).Whole().Max
	}
	return m
}

// wattsOf is the most that a machine of the type draws.
func (p *Provider) wattsOf(it *instanceType) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	watts, ok := p.watts[it]
	if !ok {
		if len(p.watts) >= maxTypes {
			clear(p.watts)
		}
		watts = machines.MostWatts(it)
		p.watts[it] = watts
	}
	return watts
}
