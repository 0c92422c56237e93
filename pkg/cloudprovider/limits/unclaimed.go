package limits

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// unclaimed is a machine whose NodeClaim does not say that it has one: a process died between launch and record, or the
// NodeClaim is gone.
type unclaimed struct {
	machine
	nodeClaim string // its name, where the provider knows it
}

func (p *Provider) isStale() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stale
}

func (p *Provider) setStale() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stale = true
}

// hasMachine asks the cloud whether it has a machine of a NodeClaim for which there is no room. The caller holds launching.
func (p *Provider) hasMachine(ctx context.Context, r rules, c *karpenterv1.NodeClaim) (bool, error) {
	if p.clock.Since(c.CreationTimestamp.Time) < lookPause && p.clock.Since(p.looked) < lookPause && !p.isStale() && !p.knows(c.Name) {
		return false, nil // it is new, and this is its first launch
	}
	if err := p.look(ctx, r); err != nil {
		return false, err
	}
	return p.knows(c.Name), nil
}

// knows reports whether a machine of the cloud is that of the NodeClaim of this name.
func (p *Provider) knows(nodeClaim string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.unclaimed {
		if m.nodeClaim != "" && m.nodeClaim == nodeClaim {
			return true
		}
	}
	return false
}

// refresh asks the cloud which machines no NodeClaim has: once in the life of the process, and from time to time
// while there are such. The caller holds launching.
func (p *Provider) refresh(ctx context.Context, r rules) error {
	p.mu.Lock()
	due := p.looked.IsZero() || len(p.unclaimed) > 0 && p.clock.Now().Sub(p.looked).Abs() >= lookPause
	p.mu.Unlock()
	if !due {
		return nil
	}
	return p.look(ctx, r)
}

// refreshForPlan finds that machines without NodeClaims are gone: while they take all room no launch would. Where the
// cloud does not answer, the plan goes by what is known.
func (p *Provider) refreshForPlan(ctx context.Context, r rules) {
	if !p.launching.TryLock() {
		return
	}
	defer p.launching.Unlock()
	p.mu.Lock()
	some := len(p.unclaimed) > 0
	p.mu.Unlock()
	if !some || p.clock.Now().Sub(p.asked).Abs() < lookPause {
		return
	}
	if err := p.look(ctx, r); err != nil {
		log.FromContext(ctx).Error(err, "machines that no NodeClaim has may be gone, and count")
	}
}

// look asks the cloud for machines that no NodeClaim has, and that this process does not launch.
func (p *Provider) look(ctx context.Context, r rules) error {
	p.asked = p.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	all, err := p.List(ctx)
	if err != nil {
		return fmt.Errorf("listing the machines of the cloud: %w", err)
	}
	list := &karpenterv1.NodeClaimList{}
	if err := p.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeClaims: %w", err)
	}
	p.mu.Lock()
	ids, names := sets.New[string](), sets.New[string]()
	for i := range list.Items {
		c := &list.Items[i]
		ids.Insert(c.Status.ProviderID)
		if l := p.starting[c.UID]; l != nil {
			names.Insert(c.Name)
			ids.Insert(l.providerID)
		}
	}
	p.mu.Unlock()
	found, catalogues := map[string]unclaimed{}, p.catalogues(ctx, r)
	for _, c := range all {
		if ids.Has(c.Status.ProviderID) || c.Name != "" && names.Has(c.Name) {
			continue
		}
		found[c.Status.ProviderID] = unclaimed{machine: p.newMachine(c, catalogues[c.Labels[karpenterv1.NodePoolLabelKey]]), nodeClaim: c.Name}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unclaimed, p.stale, p.looked = found, false, p.asked
	return nil
}
