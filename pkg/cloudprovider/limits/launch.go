package limits

import (
	"context"
	"fmt"

	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	mckubev1alpha1 "github.com/mainspring-rt/mainspring/pkg/apis/mckube/v1alpha1"
)

// launch is a NodeClaim that has room. One that is launched again has the same, while that is still there.
type launch struct {
	machine
	requirements []karpenterv1.NodeSelectorRequirementWithMinValues
	offered      []*instanceType
	providerID   string // of the machine; empty: the cloud has not said that there is one
}

// Create launches a machine that the NodePool's policies have room for, or refuses with
// cloudprovider.InsufficientCapacityError, which names the policy.
func (p *Provider) Create(ctx context.Context, c *karpenterv1.NodeClaim) (*karpenterv1.NodeClaim, error) {
	l, err := p.reserve(ctx, c)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return p.CloudProvider.Create(ctx, c)
	}
	narrowed := c.DeepCopy()
	narrowed.Spec.Requirements = l.requirements
	created, err := p.CloudProvider.Create(ctx, narrowed)
	p.settle(c, l, created, err)
	return created, err
}

// reserve keeps room for a NodeClaim; nil where no policy bounds it, or where it has its machine already.
func (p *Provider) reserve(ctx context.Context, c *karpenterv1.NodeClaim) (*launch, error) {
	pool := c.Labels[karpenterv1.NodePoolLabelKey]
	if pool == "" || c.Annotations[mckubev1alpha1.AnnotationAdopt] != "" {
		return nil, nil //nolint:nilnil // of no NodePool, or for a machine that runs
	}
	if r, err := p.readRules(ctx); err != nil || !r.bounds(pool) {
		return nil, err
	}
	p.launching.Lock() // two that compare at once would both find the same room
	defer p.launching.Unlock()
	r, err := p.readRules(ctx) // as they are now: the lock may have taken its time
	if err != nil || !r.bounds(pool) {
		return nil, err
	}
	if r.nodePools[pool] == nil {
		return nil, fmt.Errorf("launching NodeClaim %s under CostPolicies and PowerPolicies: its NodePool %q is not there", c.Name, pool)
	}
	offered, err := p.CloudProvider.GetInstanceTypes(ctx, r.nodePools[pool])
	if err != nil {
		return nil, err // as it is: callers branch on its type
	}
	if err := p.refresh(ctx, r); err != nil {
		return nil, err
	}
	l, left, err := p.compare(ctx, r, c, offered)
	if err != nil || l != nil {
		return l, err
	}
	// Before it goes: a machine that it has would stay, and draw on.
	if has, err := p.hasMachine(ctx, r, c); err != nil || has {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.starting, c.UID)
	return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("NodePool %s may not open what NodeClaim %s asks for: %s", pool, c.Name, left))
}

// compare returns the launch of a NodeClaim, for which room is kept; nil where there is none, and what is left. One
// that was begun before goes on with what was kept for it, while that still has room: the cloud may have a machine of
// it. The caller holds launching.
func (p *Provider) compare(ctx context.Context, r rules, c *karpenterv1.NodeClaim, offered []*instanceType) (*launch, room, error) {
	p.mu.Lock()
	l := p.starting[c.UID]
	delete(p.starting, c.UID) // it does not count beside itself
	p.mu.Unlock()
	open, err := p.machines(ctx, r, forLaunch)
	if err == nil && p.isStale() {
		if err = p.look(ctx, r); err == nil {
			open, err = p.machines(ctx, r, forLaunch)
		}
	}
	left := r.room(c.Labels[karpenterv1.NodePoolLabelKey], open, p.clock.Now())
	if err == nil && l == nil {
		l = p.fit(c, offered, left)
	} else if err == nil && !left.admits(l.machine) {
		p.setStale() // there may be a machine of it
		return nil, left, nil
	}
	if l == nil {
		return nil, left, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting[c.UID] = l
	clear(p.rooms)
	if err != nil {
		return nil, left, err
	}
	return l, left, nil
}

// settle replaces what was reserved by what was launched, or gives it back. An error that leaves open whether there is
// a machine gives nothing back: the NodeClaim is launched again, or goes.
func (p *Provider) settle(c *karpenterv1.NodeClaim, reserved *launch, created *karpenterv1.NodeClaim, err error) {
	settled := *reserved
	if err == nil && created != nil {
		settled.providerID = created.Status.ProviderID
		settled.machine = p.newMachine(created, newCatalogue(reserved.offered))
		settled.nodePool, settled.passing = reserved.nodePool, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.rooms)
	if cloudprovider.IsInsufficientCapacityError(err) || cloudprovider.IsNodeClassNotReadyError(err) {
		delete(p.starting, c.UID)
		return
	}
	p.starting[c.UID] = &settled
}
